// Counter-based randomness: Philox4x32-10 (Salmon et al., SC 2011) and normals from it.
//
// There is no generator state. A Key names one augmented image (seed, index, epoch, view): the key of Philox and half
// of its counter. A block of four words is a pure function of the key, the chain, the slot, what the words are for, and
// the other half of the counter. prime_dali/random.py is the same in NumPy and float64, and the tests hold the two
// together.
#pragma once
#include "math.h"

namespace prime {

template <class U>
struct Block {
  U x, y, z, w;
};

PRIME_HD void multiply(uint32_t a, uint32_t b, uint32_t& high, uint32_t& low) {
  const uint64_t product = static_cast<uint64_t>(a) * b;
  high = static_cast<uint32_t>(product >> 32);
  low = static_cast<uint32_t>(product);
}

template <class U>
PRIME_HD Block<U> philox(Block<U> c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    U high0, low0, high1, low1;
    multiply(0xD2511F53u, c.x, high0, low0);
    multiply(0xCD9E8D57u, c.z, high1, low1);
    c = {high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// What a block is for. Part of the counter: changing a number changes every augmented image.
enum class Purpose : uint32_t {
  draw = 0,
  filter = 1,
  row_shift = 2,
  column_shift = 3,
  color = 4,  // and 5 and 6, see Key::block()
  noise = 7,
  weights = 8,
  depth = 9,
  wave = 10  // and 11 and 12
};

// Normals come in runs: number k is number k % 4 of block k / 4. Runs of one purpose start kRun counters apart.
constexpr uint32_t kRun = 1024;  // blocks: a run holds at most 4096 numbers

struct Key {
  uint32_t key0, key1, salt0, salt1;

  // What is drawn for each channel of an image has three purposes side by side, which take the channels in turn: every
  // three channels begin another run.
  template <class U>
  PRIME_HD Block<U> block(U counter, int chain, int slot, Purpose purpose, int channel = 0) const {
    const uint32_t place = static_cast<uint32_t>(chain) << 16 | static_cast<uint32_t>(slot) << 8 |
                           (static_cast<uint32_t>(purpose) + static_cast<uint32_t>(channel % 3));
    const U run(static_cast<uint32_t>(channel / 3) * kRun);
    return philox<U>({counter + run, U(place), U(salt0), U(salt1)}, key0, key1);
  }
};

PRIME_HD Key make_key(uint64_t seed, int64_t index, int64_t epoch, int64_t view) {
  const uint64_t i = static_cast<uint64_t>(index);
  const Block<uint32_t> b = philox<uint32_t>({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                                              static_cast<uint32_t>(epoch), static_cast<uint32_t>(view)},
                                             static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return {b.x, b.y, b.z, b.w};
}

// What one augmented image draws from: its own key, and that of the first image of its batch in the same view.
struct Keys {
  Key own, batch;
};

PRIME_HD int32_t as_int(uint32_t u) { return static_cast<int32_t>(u); }

// Uniform in (0, 1), open at both ends: the middles of 2^23 equal cells, every one exact in float32.
template <class U>
PRIME_HD auto uniform(U word) {
  const auto cell = to_float(as_int(word >> 9));
  using F = decltype(cell + cell);
  return fma(cell, F(1.1920929e-7f), F(5.9604645e-8f));
}

// Uniform in {0, ..., n - 1}.
PRIME_HD int uniform_int(uint32_t word, int n) {
  return static_cast<int>((static_cast<uint64_t>(word) * static_cast<uint32_t>(n)) >> 32);
}

template <class F>
struct Normals {
  F z[4];
};

// Four independent N(0, 1) from one block (Box and Muller).
template <class U>
PRIME_HD auto normals(Block<U> b) {
  const auto u = uniform(b.x), v = uniform(b.z);
  using F = decltype(u + v);
  const F r = sqrt(log(F(u)) * F(-2.f)), s = sqrt(log(F(v)) * F(-2.f));
  const SinCos<F> a = sincospi(F(uniform(b.y)) * F(2.f)), c = sincospi(F(uniform(b.w)) * F(2.f));
  return Normals<F>{{r * a.cos, r * a.sin, s * c.cos, s * c.sin}};
}

PRIME_HD int run_blocks(int n) { return (n + 3) / 4; }

}  // namespace prime
