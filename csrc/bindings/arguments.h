// Shared by all bindings: numbers from Python are checked, and then converted to the fields of the core's arguments.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../core/check.h"

namespace prime {

// The fields of Distributions in their order, as prime_dali/config.py gives them.
inline void read_distributions(const std::vector<double>& given, Distributions& out) {
  require(given.size() == kDistributionFields, "distributions: expected ", kDistributionFields, " numbers, got ",
          given.size());
  memcpy(&out, given.data(), sizeof out);
  check(out);
}

// The fields of PlanShape in their order.
template <class Integer>
void read_plan_shape(const std::vector<Integer>& shape, PlanShape& out) {
  require(shape.size() == kPlanShapeFields, "plan_shape: expected ", kPlanShapeFields, " numbers, got ", shape.size());
  check_plan_shape(shape[0], shape[1], shape[2], shape[3], shape[4], shape[5]);
  int at = 0;
#define FIELD(name, what) out.name = static_cast<int>(shape[at++]);
  PRIME_PLAN_SHAPE(FIELD)
#undef FIELD
}

inline void read_size(int64_t channels, int64_t height, int64_t width, ApplyArgs& out) {
  check_range<int64_t>("channels", channels, 1, kMaxChannels);
  check_size(height, width);
  out.channels = static_cast<int>(channels);
  out.height = static_cast<int>(height), out.width = static_cast<int>(width);
}

// out = (y - mean) * scale per channel of `out`; empty lists: out = y.
inline void read_normalization(const std::vector<double>& mean, const std::vector<double>& scale, ApplyArgs& out) {
  for (int c = 0; c < out.channels; ++c) out.mean[c] = 0.f, out.scale[c] = 1.f;
  if (mean.empty() && scale.empty()) return;
  const size_t channels = static_cast<size_t>(out.channels);
  require(mean.size() == channels && scale.size() == channels, "mean, std: expected ", channels,
          " numbers each, one per channel, or none, got ", mean.size(), " and ", scale.size());
  for (int c = 0; c < out.channels; ++c)
    out.mean[c] = static_cast<float>(mean[c]), out.scale[c] = static_cast<float>(scale[c]);
}

// The error message for invalid pixels; `where` says which images, after the numbers.
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
         "; scale images to [0, 1] first, and normalize the output with mean and std";
}

// The error message for invalid pixels in an earlier call on a GPU.
inline std::string earlier_pixel_error(const char* argument, const BadPixels& bad, int device) {
  return pixel_error(
      argument, bad,
      ", in an earlier call on cuda:" + std::to_string(device) + " (its output is NaN there, 0 in uint8)");
}

// Strides of a dense [n, channels, height, width] array, in elements.
inline Strides dense_strides(int64_t channels, int64_t height, int64_t width, bool channels_last) {
  if (channels_last) return {channels * height * width, 1, channels * width, channels};
  return {channels * height * width, height * width, width, 1};
}

}  // namespace prime
