// What was drawn for a batch, and how it is drawn.
//
// A plan is a table of 32-bit words, one row an augmented image:
//   4 words           the image's Philox key
//   chains + 1        mixing weights lambda_0 .. lambda_n (float32)
//   chains x depth x  {primitive (int), strength (float32), first (int), last (int)}
//   0 or 1            mean strength of the waves (float32), see wave.h
#pragma once
#include "primitives.h"
#include "wave.h"

namespace prime {

// How far the weights of a row may be from a sum of 1: half a step of 8 bits.
constexpr float kWeightTolerance = 1.f / 512.f;

// waves: 1 or 0, as in PlanShape.
PRIME_HD int row_words(int chains, int depth, int waves) { return 5 + chains + 4 * chains * depth + waves; }
PRIME_HD int row_words(const PlanShape& shape) { return row_words(shape.chains, shape.depth, shape.waves); }

// One row, read or written.
template <class Word>
struct Row {
  Word* words;
  int chains, depth, waves;

  PRIME_HD Key key() const { return {uint32_t(words[0]), uint32_t(words[1]), uint32_t(words[2]), uint32_t(words[3])}; }
  PRIME_HD void set_key(Key key) const {
    words[0] = static_cast<int32_t>(key.key0), words[1] = static_cast<int32_t>(key.key1);
    words[2] = static_cast<int32_t>(key.salt0), words[3] = static_cast<int32_t>(key.salt1);
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
  PRIME_HD float wave_strength() const { return waves ? from_bits(words[row_words(chains, depth, 0)]) : 0.f; }
  PRIME_HD void set_wave_strength(float strength) const {
    if (waves) words[row_words(chains, depth, 0)] = bits(strength);
  }
};

// Row r of a plan of this shape.
template <class Word>
PRIME_HD Row<Word> row_of(Word* plan, int64_t r, const PlanShape& shape) {
  return {plan + r * row_words(shape), shape.chains, shape.depth, shape.waves};
}

PRIME_HD void draw_weights(const Distributions& d, Key key, Row<int32_t> row) {
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
    if (i % 4 == 0) block = key.block<uint32_t>(static_cast<uint32_t>(i / 4), 0, 0, Purpose::weights);
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

// One of the parts of a row that can be drawn apart: a slot, or, after the slots, all else: the Philox key, the
// weights, and the strength of waves. view -1 is the clean image: nothing happens to it.
PRIME_HD int row_parts(int chains, int depth) { return chains * depth + 1; }
PRIME_HD void draw_part(const Distributions& d, const Keys& keys, int64_t view, int part, Row<int32_t> row) {
  const int chain = part / row.depth, j = part % row.depth;
  if (chain < row.chains) {
    int depth = view < 0 ? 0 : row.depth;
    if (d.random_depth != 0 && depth)
      depth = 1 + uniform_int(keys.own.block<uint32_t>(0u, chain, 0, Purpose::depth).x, row.depth);
    row.set_slot(chain, j, j < depth ? draw_slot(d, keys, chain, j) : Slot{kIdentity, 0.f, 0, 0});
    return;
  }
  row.set_key(keys.own);
  row.set_wave_strength(view < 0 ? 0.f : static_cast<float>(d.wave_strength) * static_cast<float>(d.alpha));
  if (view >= 0) return draw_weights(d, keys.own, row);
  for (int i = 0; i <= row.chains; ++i) row.set_weight(i, i == 0 ? 1.f : 0.f);
}

PRIME_HD Row<int32_t> row_of(int32_t* plan, int64_t r, const Distributions& d) {
  const int chains = static_cast<int>(d.chains), depth = static_cast<int>(d.depth), waves = d.wave_strength != 0;
  return {plan + r * row_words(chains, depth, waves), chains, depth, waves};
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
  // The index and the epoch of the batch's first image, if that is in another call; null: index[0] and epoch[0].
  const int64_t* batch_index = nullptr;
  const int64_t* batch_epoch = nullptr;

  PRIME_HD Row<int32_t> row(int64_t r) const { return row_of(plan, r, distributions); }
  PRIME_HD Keys keys(int64_t r, int64_t view) const {
    const Key own = make_key(seed, index[r % images], epoch[r % images * epoch_step], view);
    if (distributions.batch_draws == 0) return {own, own};
    return {own, make_key(seed, batch_index ? *batch_index : *index, batch_epoch ? *batch_epoch : *epoch, view)};
  }
};

}  // namespace prime
