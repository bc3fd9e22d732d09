// What all bindings do the same way: numbers from Python into the core's argument structs, checked before they are cut
// to the size of a field.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"

namespace prime {

// The fields of Distributions in their order, as prime_dali/config.py gives them.
inline void read_distributions(const std::vector<double>& given, Distributions& out) {
  require(given.size() == kDistributionFields, "distributions: expected ", kDistributionFields, " numbers, got ",
          given.size());
  memcpy(&out, given.data(), sizeof out);
  check(out);
}

// Chains, depth, filter size, largest cut and widest band of a plan.
template <class Integer>
void read_plan_shape(const std::vector<Integer>& shape, PlanShape& out) {
  require(shape.size() == kPlanShapeFields, "plan_shape: expected ", kPlanShapeFields, " numbers, got ", shape.size());
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

// What to tell a caller whose images are no pixels; `where` says which, after the numbers.
inline std::string pixel_error(const char* argument, const BadPixels& bad, const std::string& where = "") {
  char range[64] = "NaN";
  if (bad.above != 0) {
    const float low = bad.lowest(), high = bad.highest();  // nine digits tell any two float32 numbers apart
    const char* nan = bad.any_nan ? " and NaN" : "";
    if (low == high)
      snprintf(range, sizeof range, "%.9g%s", low, nan);
    else
      snprintf(range, sizeof range, "%.9g to %.9g%s", low, high, nan);
  }
  return std::string(argument) + ": expected finite values in [0, 1] (up to 1/" +
         std::to_string(static_cast<int>(1.f / kPixelTolerance)) + " outside is rounding, and clamped), got " +
         std::to_string(bad.values) + " outside, " + range + where +
         "; scale images to [0, 1] before, and normalise after, with mean and std";
}

// What kernels have found by now, as far as the host can see without waiting; and the memory starts afresh. A kernel
// that adds to it at this very moment may be told of again.
inline BadPixels take(BadPixels* shared) {
  BadPixels found{};
  found.values = __atomic_load_n(&shared->values, __ATOMIC_ACQUIRE);
  if (found.values == 0) return found;
  found.any_nan = __atomic_exchange_n(&shared->any_nan, 0, __ATOMIC_RELAXED);
  found.below = __atomic_exchange_n(&shared->below, 0, __ATOMIC_RELAXED);
  found.above = __atomic_exchange_n(&shared->above, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&shared->values, 0, __ATOMIC_RELEASE);
  return found;
}

// What to tell a caller whose GPU has met such images in an earlier call.
inline std::string earlier_pixel_error(const char* argument, const BadPixels& bad, int device) {
  return pixel_error(argument, bad,
                     ", in an earlier call on cuda:" + std::to_string(device) + " (its output is NaN there, uint8 0)");
}

// Strides of a dense [n, 3, height, width] array, in elements.
inline Strides dense_strides(int64_t height, int64_t width, bool channels_last) {
  if (channels_last) return {3 * height * width, 1, 3 * width, 3};
  return {3 * height * width, height * width, width, 1};
}

}  // namespace prime
