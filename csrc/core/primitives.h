// Arithmetic of the primitives (docs/METHOD.md, sections Spectral to Noise). To change what one does, change it here
// (or in csrc/cuda, where the header of each primitive has faster forms of its own) and in prime_dali/reference.py;
// tests/test_primitives.py says whether they agree.
#pragma once
#include "plan.h"

namespace prime {

// ---------------------------------------------------------------------------------------------------------- spatial
// u(y, x) = sum over modes a, b of B_ab sin(pi a y / (H-1)) sin(pi b x / (W-1)). Modes of the law above the grid's
// Nyquist frequency alias onto the (H-2) x (W-2) modes that the grid can hold, and their variances add up: sampling
// those is the same law with fewer numbers.

PRIME_HD int modes(int cut, int side) { return cut < side - 2 ? cut : side - 2; }

// Modes b = 1 .. row_modes of row a lie in the disc sqrt(a^2 + b^2) < cut + 1/2, that is a^2 + b^2 <= cut^2 + cut.
PRIME_HD int row_modes(int a, int cut, int width) {
  const int square = cut * cut + cut - a * a;
  if (square < 1) return 0;
  int b = static_cast<int>(sqrt(static_cast<float>(square)));
  if (b * b > square) --b;
  return modes(b, width);
}

// The i-th frequency that aliases onto mode a of a grid with N = side - 1 intervals: a, 2N - a, 2N + a, 4N - a, ...
PRIME_HD int alias(int a, int i, int intervals) { return (i + 1) / 2 * 2 * intervals + (i % 2 ? -a : a); }

// sin(pi mode k / intervals): the argument is reduced in integers, so it is exact for any mode.
PRIME_HD float grid_sine(int mode, int k, int intervals) {
  const int r = static_cast<int>(static_cast<int64_t>(mode) * k % (2 * intervals));
  return sincospi(static_cast<float>(r) / static_cast<float>(intervals)).sin;
}

// ------------------------------------------------------------------------------------------------------------ color
// x + sum over f = first .. first + count - 1 of b_f sin(pi f x), clipped. sin and cos of one frequency give those of
// the next by a rotation; the chain is started afresh, exactly, every kRestart frequencies.
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

}  // namespace prime
