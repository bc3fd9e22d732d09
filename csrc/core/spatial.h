// Spatial: a smooth displacement of pixels (docs/METHOD.md, section Spatial).
#pragma once
#include "slot.h"

namespace prime {

// u(y, x) = sum over modes a, b of B_ab sin(pi a y / (H-1)) sin(pi b x / (W-1)). Modes of the distribution above the
// grid's Nyquist frequency alias onto the (H-2) x (W-2) modes that the grid can hold, and their variances add up:
// sampling those is the same distribution with fewer numbers.

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

// Of the distribution of q, which sets cut and temperature.
PRIME_HD float quantile(uint32_t word, bool arcsine) {
  const float u = uniform(word);
  if (!arcsine) return u;
  const float s = sincospi(0.5f * u).sin;
  return s * s;
}

// sqrt(T) of docs/METHOD.md "Spatial", T between T1 and max(T1, T2), n^2 = height x width.
PRIME_HD float spatial_strength(const Distributions& d, int cut, float q) {
  const float pi = 3.14159265f, c = static_cast<float>(cut), logarithm = log(c);
  const float t1 = 1.f / (((pi * static_cast<float>(d.height)) * static_cast<float>(d.width)) * logarithm);
  const float t2 = 4.f / (((pi * pi * pi) * (c * c)) * logarithm);
  return sqrt(fma(q, (t1 > t2 ? t1 : t2) - t1, t1));
}

// What the coefficients of a slot's two fields are a function of: the image's key, the chain and the slot. Where
// `first` is not 0 it is the number of a pair of fields, which every slot with this number has: so images share them.
struct FieldPlace {
  Key key;
  int chain, slot;
};
PRIME_HD FieldPlace field_place(Slot s, Key key, int chain, int slot) {
  if (s.first == 0) return {key, chain, slot};
  return {{static_cast<uint32_t>(s.first), 0u, 0u, 0u}, 0, 0};
}

struct Spatial {
  static constexpr bool kPointwise = false, kTable = false, kParameters = false;
  PRIME_HD static bool valid(Slot s, const PlanShape& shape) { return s.last >= 1 && s.last <= shape.max_cut; }
  PRIME_HD static Slot draw(const Distributions& d, const Block<uint32_t>& words) {
    const bool arcsine = d.arcsine != 0;
    int cut = static_cast<int>(d.spatial_cut);
    if (cut == 0) {
      const int least = 2;
      const int most = least + 1 + uniform_int(words.z, static_cast<int>(d.spatial_cut_max) - least);
      const int range = most + 1 - least;
      const int step = static_cast<int>(quantile(words.w, arcsine) * static_cast<float>(range));
      cut = least + (step < range ? step : range - 1);  // the product may round up to range
    }
    const int32_t field = d.batch_draws != 0 ? as_int(words.x ? words.x : 1u) : 0;
    return {kSpatial, spatial_strength(d, cut, quantile(words.y, arcsine)), field, cut};
  }
};

}  // namespace prime
