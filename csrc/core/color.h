// Color: a random smooth map of the values of each channel (docs/METHOD.md, section Color).
#pragma once
#include "slot.h"

namespace prime {

// x + sum over f = first .. first + count - 1 of b_f sin(pi f x), clipped; coefficients: [count], b_first and so on.
// sin and cos of one frequency give those of the next by a rotation, which starts afresh, exactly, every kRestart
// frequencies.
template <class F>
PRIME_HD F color_map(F x, const float* coefficients, int first, int count) {
  constexpr int kRestart = 64;
  const SinCos<F> step = sincospi(x);
  F sum(0.f);
  for (int start = 0; start < count; start += kRestart) {
    const F frequency(static_cast<float>(first + start));
    const F product = x * frequency, lost = fma(x, frequency, F(0.f) - product);
    const F turns = product - floor(product * F(0.5f)) * F(2.f);  // exact: sin(pi f x) has period 2 in f x
    SinCos<F> wave = sincospi(turns + lost);
    const int stop = start + kRestart < count ? start + kRestart : count;
    for (int k = start;;) {
      sum = fma(F(coefficients[k]), wave.sin, sum);
      if (++k == stop) break;
      wave = {fma(wave.sin, step.cos, wave.cos * step.sin), fma(wave.cos, step.cos, F(0.f) - wave.sin * step.sin)};
    }
  }
  return clip01(x + sum);
}

struct Color {
  static constexpr bool kPointwise = true, kTable = true, kParameters = true;
  PRIME_HD static bool valid(Slot s, const PlanShape& shape) {
    return s.first >= 1 && s.first <= s.last && s.last <= kMaxColorCut && s.last - s.first < shape.max_band;
  }
  PRIME_HD static Slot draw(const Distributions& d, const Block<uint32_t>& words) {
    const float std = sqrt(uniform(words.y) * static_cast<float>(d.color_variance_max));
    int cut = static_cast<int>(d.color_cut);
    if (cut == 0) cut = 1 + uniform_int(words.z, static_cast<int>(d.color_cut_max));
    const int band = static_cast<int>(d.color_band);
    if (band == 0) return {kColor, std, 1, cut};
    const int first = 1 + uniform_int(words.w, cut);
    return {kColor, std, first, first + band - 1 < cut ? first + band - 1 : cut};
  }
};

}  // namespace prime
