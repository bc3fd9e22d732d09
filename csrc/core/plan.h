// What was drawn for a batch, and how it is drawn.
//
// A plan is a table of 32-bit words, one row an augmented image:
//   4 words           the image's random stream
//   chains + 1        mixing weights lambda_0 .. lambda_n (float32)
//   chains x depth x  {primitive (int), strength (float32), first (int), last (int)}
#pragma once
#include "distributions.h"
#include "random.h"

namespace prime {

enum Primitive : int32_t { kIdentity = 0, kSpectral = 1, kSpatial = 2, kColor = 3, kNoise = 4 };

struct Slot {
  int32_t primitive;
  float strength;  // spectral, noise: standard deviation; spatial: sqrt(T); color: standard deviation sqrt(T)
  int32_t first;   // color: first frequency of the band
  int32_t last;    // color: last frequency of the band; spatial: cut c
};
static_assert(sizeof(Slot) == 16, "a slot is four words");

// How far the weights of a row may be from a sum of 1: half a step of 8 bits.
constexpr float kWeightTolerance = 1.f / 512.f;

// Plans can be edited by hand. What no draw could have made is not run: on the CPU the plan is refused (check.h); on a
// GPU, which nobody waits for, pixels become NaN, and bytes 0.
PRIME_HD bool valid(Slot s, int max_cut, int max_band) {
  if (s.primitive != kIdentity && !(s.strength >= 0.f && s.strength <= kMaxStrength)) return false;
  switch (s.primitive) {
    case kIdentity:
    case kSpectral:
    case kNoise: return true;
    case kSpatial: return s.last >= 1 && s.last <= max_cut;
    case kColor: return s.first >= 1 && s.first <= s.last && s.last <= kMaxColorCut && s.last - s.first < max_band;
    default: return false;
  }
}

PRIME_HD int row_words(int chains, int depth) { return 5 + chains + 4 * chains * depth; }

// One row, read or written.
template <class Word>
struct Row {
  Word* words;
  int chains, depth;

  PRIME_HD Stream stream() const {
    return {uint32_t(words[0]), uint32_t(words[1]), uint32_t(words[2]), uint32_t(words[3])};
  }
  PRIME_HD void set_stream(Stream s) const {
    words[0] = static_cast<int32_t>(s.key0), words[1] = static_cast<int32_t>(s.key1);
    words[2] = static_cast<int32_t>(s.salt0), words[3] = static_cast<int32_t>(s.salt1);
  }
  PRIME_HD float weight(int i) const { return from_bits(words[4 + i]); }
  PRIME_HD void set_weight(int i, float w) const { words[4 + i] = bits(w); }
  PRIME_HD Slot slot(int chain, int j) const {
    const Word* w = words + 5 + chains + 4 * (chain * depth + j);
    return {w[0], from_bits(w[1]), w[2], w[3]};
  }
  PRIME_HD void set_slot(int chain, int j, Slot s) const {
    Word* w = words + 5 + chains + 4 * (chain * depth + j);
    w[0] = s.primitive, w[1] = bits(s.strength), w[2] = s.first, w[3] = s.last;
  }
};

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

PRIME_HD Slot draw_slot(const Distributions& d, Stream stream, int chain, int j) {
  const int enabled[4] = {d.spectral != 0, d.spatial != 0, d.color != 0, d.noise != 0};
  const int primitives = enabled[0] + enabled[1] + enabled[2] + enabled[3];
  const int options = primitives + (d.identity != 0);
  const Block<uint32_t> block = stream.block<uint32_t>(0u, chain, j, Purpose::draw);
  int pick = options ? uniform_int(block.x, options) : 0;
  if (pick >= primitives) return {kIdentity, 0.f, 0, 0};
  int primitive = 0;
  for (;; ++primitive)
    if (enabled[primitive] && pick-- == 0) break;

  const float alpha = static_cast<float>(d.alpha);
  const bool arcsine = d.arcsine != 0;
  switch (primitive + 1) {
    case kSpectral: return {kSpectral, alpha * (uniform(block.y) * static_cast<float>(d.spectral_std_max)), 0, 0};
    case kSpatial: {
      int cut = static_cast<int>(d.spatial_cut);
      if (cut == 0) {
        const int least = 2;
        const int most = least + 1 + uniform_int(block.z, static_cast<int>(d.spatial_cut_max) - least);
        const int range = most + 1 - least;
        const int step = static_cast<int>(quantile(block.w, arcsine) * static_cast<float>(range));
        cut = least + (step < range ? step : range - 1);  // the product may round up to range
      }
      return {kSpatial, alpha * spatial_strength(d, cut, quantile(block.y, arcsine)), 0, cut};
    }
    case kColor: {
      const float std = sqrt(uniform(block.y) * static_cast<float>(d.color_variance_max));
      int cut = static_cast<int>(d.color_cut);
      if (cut == 0) cut = 1 + uniform_int(block.z, static_cast<int>(d.color_cut_max));
      const int band = static_cast<int>(d.color_band);
      if (band == 0) return {kColor, alpha * std, 1, cut};
      const int first = 1 + uniform_int(block.w, cut);
      return {kColor, alpha * std, first, first + band - 1 < cut ? first + band - 1 : cut};
    }
    default: return {kNoise, alpha * static_cast<float>(d.noise_std), 0, 0};
  }
}

PRIME_HD void draw_weights(const Distributions& d, Stream stream, Row<int32_t> row) {
  const int n = row.chains;
  const bool beta = d.blend == 1;
  if (d.blend == 2) {  // "w/o mix": the last chain alone, and there is one
    for (int i = 0; i <= n; ++i) row.set_weight(i, i == n ? 1.f : 0.f);
    return;
  }
  // Dirichlet(1, ..., 1): exponentials over their sum. Under Beta(1,1) the first word is b instead.
  float sum = 0.f, b = 1.f;
  Block<uint32_t> block{};
  for (int i = 0; i <= n; ++i) {
    if (i % 4 == 0) block = stream.block<uint32_t>(static_cast<uint32_t>(i / 4), 0, 0, Purpose::weights);
    const uint32_t word = i % 4 == 0 ? block.x : i % 4 == 1 ? block.y : i % 4 == 2 ? block.z : block.w;
    const float u = uniform(word);
    if (beta && i == 0) {
      b = u;
      continue;
    }
    const float exponential = -log(u);
    row.set_weight(i, exponential);
    sum += exponential;
  }
  for (int i = beta ? 1 : 0; i <= n; ++i) row.set_weight(i, b * (row.weight(i) / sum));
  if (beta) row.set_weight(0, 1.f - b);
}

// One of the parts of a row that can be drawn apart: a slot, or, after the slots, the stream and the weights. view -1
// is the clean image: nothing happens to it.
PRIME_HD int row_parts(int chains, int depth) { return chains * depth + 1; }
PRIME_HD void draw_part(const Distributions& d, Stream stream, int64_t view, int part, Row<int32_t> row) {
  const int chain = part / row.depth, j = part % row.depth;
  if (chain < row.chains) {
    int depth = view < 0 ? 0 : row.depth;
    if (d.random_depth != 0 && depth)
      depth = 1 + uniform_int(stream.block<uint32_t>(0u, chain, 0, Purpose::depth).x, row.depth);
    row.set_slot(chain, j, j < depth ? draw_slot(d, stream, chain, j) : Slot{kIdentity, 0.f, 0, 0});
    return;
  }
  row.set_stream(stream);
  if (view >= 0) return draw_weights(d, stream, row);
  for (int i = 0; i <= row.chains; ++i) row.set_weight(i, i == 0 ? 1.f : 0.f);
}

PRIME_HD Row<int32_t> row_of(int32_t* plan, int64_t r, const Distributions& d) {
  const int chains = static_cast<int>(d.chains), depth = static_cast<int>(d.depth);
  return {plan + r * row_words(chains, depth), chains, depth};
}

struct SampleArgs {
  Distributions distributions;
  const int64_t* index;  // [images], each image's own number
  const int64_t* epoch;  // [images], or one for all with epoch_step 0
  int64_t epoch_step;
  int64_t images;
  uint64_t seed;
  const int64_t* views;  // host memory, [view_count], -1: clean
  int view_count;
  int32_t* plan;  // [view_count * images, row_words]

  PRIME_HD Row<int32_t> row(int64_t r) const { return row_of(plan, r, distributions); }
  PRIME_HD Stream stream(int64_t r, int64_t view) const {
    return make_stream(seed, index[r % images], epoch[r % images * epoch_step], view);
  }
};

}  // namespace prime
