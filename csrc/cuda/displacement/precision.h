// How precisely the GPU keeps a displacement field, as a function of its slot. For host and device, so that tests can
// ask.
#pragma once
#include "../../core/plan.h"

namespace prime {

// A pixel's shifts, down and right, are kept side by side. Mostly as 16-bit codes, 0x8000 + round(shift /
// quantization_step), in one word: put into the low half of a float that begins with kCodeBits, a code is the number
// kCodeZero + shift / quantization_step. Where that would be too coarse, as two floats: then `quantization_step` is
// kWide.
constexpr uint32_t kCodeBits = 0x4b000000u;
constexpr float kCodeZero = 8421376.f;  // 2^23 + 0x8000
constexpr float kWide = 1.f;

struct Precision {
  bool coarse;              // half precision suffices
  float quantization_step;  // quantization step of the codes, in pixels, or kWide
  PRIME_HD Precision(int height, int width, Slot s) {
    // Variance of a shift along one axis, in units of `pixels`: the variances 1 / (i^2 + j^2) over a quarter disc,
    // times the mean of the squared sines. Where that makes 0.6 pixels, factors in half precision leave shifts off by
    // 2e-4, and the largest by 1e-3 (test_half_precision_is_ample_for_small_shifts).
    const float pixels = s.strength * static_cast<float>(height > width ? height : width);
    const float variance = 0.3927f * log(static_cast<float>(s.last));
    coarse = pixels * sqrt(variance) <= 0.6f;
    // No pixel's variance is larger than that and 0.5, and little less than that and 0.2. So codes reach 8.4 standard
    // deviations of the pixel that moves most, or up to twice as far, for the step is a power of two; beyond is one
    // shift of 1e16 at worst (test_codes_of_shifts_are_wide_enough). They are off by half a step: 6e-5 pixels for most
    // fields, 1e-3 at most.
    const float least = 1.f / 32768.f, most = 1.f / 512.f;
    const float wanted = 8.f * pixels * sqrt(variance + 0.5f) * least;
    const float code_step = from_bits((bits(wanted > least ? wanted : least) + 0x7fffff) & 0x7f800000);
    quantization_step = code_step <= most ? code_step : kWide;
  }
};

}  // namespace prime
