// What both bindings do the same way: numbers from Python into the core's argument structs.
#pragma once
#include <algorithm>
#include <cstring>

#include "core/image.h"

namespace prime {

// `law` as prime_dali/config.py gives it. False if it has the wrong length.
inline bool read_law(const double* law, size_t count, Law& out) {
  if (count != kLawFields) return false;
  memcpy(&out, law, sizeof out);
  return true;
}

// out = (y - mean) * scale per channel; empty lists: out = y.
inline bool read_normalization(const double* mean, size_t means, const double* scale, size_t scales, ApplyArgs& out) {
  for (int c = 0; c < 3; ++c) out.mean[c] = 0.f, out.scale[c] = 1.f;
  if (means == 0 && scales == 0) return true;
  if (means != 3 || scales != 3) return false;
  for (int c = 0; c < 3; ++c) out.mean[c] = static_cast<float>(mean[c]), out.scale[c] = static_cast<float>(scale[c]);
  return true;
}

// Strides of a dense [n, 3, height, width] array, in elements.
inline Strides dense_strides(int64_t height, int64_t width, bool channels_last) {
  if (channels_last) return {3 * height * width, 1, 3 * width, 3};
  return {3 * height * width, height * width, width, 1};
}

}  // namespace prime
