// What all bindings do the same way: numbers from Python into the core's argument structs, checked before they are cut
// to the size of a field.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/check.h"

namespace prime {

// `law` as prime_dali/config.py gives it.
inline void read_law(const std::vector<double>& law, Law& out) {
  require(law.size() == kLawFields, "law: expected ", kLawFields, " numbers, got ", law.size());
  memcpy(&out, law.data(), sizeof out);
  check(out);
}

// Chains, depth, filter size, largest cut and widest band of a plan.
template <class Integer>
void read_plan_shape(const std::vector<Integer>& shape, ApplyArgs& out) {
  require(shape.size() == 5, "plan_shape: expected 5 numbers, got ", shape.size());
  check_plan_shape(shape[0], shape[1], shape[2], shape[3], shape[4]);
  out.chains = static_cast<int>(shape[0]), out.depth = static_cast<int>(shape[1]);
  out.filter = static_cast<int>(shape[2]);
  out.max_cut = static_cast<int>(shape[3]), out.max_band = static_cast<int>(shape[4]);
}

inline void read_size(int64_t height, int64_t width, ApplyArgs& out) {
  check_size(height, width);
  out.height = static_cast<int>(height), out.width = static_cast<int>(width);
}

// out = (y - mean) * scale per channel; empty lists: out = y.
inline void read_normalization(const std::vector<double>& mean, const std::vector<double>& scale, ApplyArgs& out) {
  for (int c = 0; c < 3; ++c) out.mean[c] = 0.f, out.scale[c] = 1.f;
  if (mean.empty() && scale.empty()) return;
  require(mean.size() == 3 && scale.size() == 3, "mean, std: expected three numbers each, or none, got ", mean.size(),
          " and ", scale.size());
  for (int c = 0; c < 3; ++c) out.mean[c] = static_cast<float>(mean[c]), out.scale[c] = static_cast<float>(scale[c]);
}

// Strides of a dense [n, 3, height, width] array, in elements.
inline Strides dense_strides(int64_t height, int64_t width, bool channels_last) {
  if (channels_last) return {3 * height * width, 1, 3 * width, 3};
  return {3 * height * width, height * width, width, 1};
}

}  // namespace prime
