// Pixels in memory and in registers.
//
// Images in the workspace hold the kC channels of a pixel that run together (kTogether at most) as 16-bit fixed point,
// 0x8000 + round(32640 x): 2 bytes a pixel of one channel, 4 of two, 8 of four, and 8 of three (red, green and blue),
// whose last 16 bits begin with 0x3f. 32640 is 128 x 255, so every byte is exact; other values are off by 1/65280 at
// most. The code is the middle of a float32 in [1, 2): one byte permutation, which takes 0x3f from a constant or from
// the pixel of three channels itself, makes 1 + (255/256) x of it.
#pragma once
#include <cuda_fp16.h>

#include "device.cuh"
#include "views.cuh"

namespace prime {

constexpr float kUp = 256.f / 255.f, kDown = 255.f / 256.f;
constexpr uint32_t kBlack = 0x80008000u, kBlackBlue = 0x3f008000u;  // two channels; the last word of three

// ------------------------------------------------------------------------------------------------- pixels in memory
template <int kC>
struct InMemory {
  using Pixel = uint2;  // the first two channels, and the last one or two
  using Pair = uint4;   // two neighboring pixels
};
template <>
struct InMemory<2> {
  using Pixel = uint32_t;
  using Pair = uint2;
};
template <>
struct InMemory<1> {
  using Pixel = uint16_t;
  using Pair = uint32_t;
};
template <int kC>
using Pixel = typename InMemory<kC>::Pixel;
template <int kC>
using Pair = typename InMemory<kC>::Pair;

inline size_t pixel_bytes(int channels) {
  return channels == 1 ? sizeof(Pixel<1>) : channels == 2 ? sizeof(Pixel<2>) : sizeof(Pixel<3>);
}

// The pixels of a pair. Of one channel what is above 16 bits has no meaning.
__device__ __forceinline__ uint2 left_of(uint4 pair) { return {pair.x, pair.y}; }
__device__ __forceinline__ uint2 right_of(uint4 pair) { return {pair.z, pair.w}; }
__device__ __forceinline__ uint32_t left_of(uint2 pair) { return pair.x; }
__device__ __forceinline__ uint32_t right_of(uint2 pair) { return pair.y; }
__device__ __forceinline__ uint32_t left_of(uint32_t pair) { return pair; }
__device__ __forceinline__ uint32_t right_of(uint32_t pair) { return pair >> 16; }

// The word that holds channel c: in its lower half if c is even.
__device__ __forceinline__ uint32_t word_of(uint2 p, int c) { return c < 2 ? p.x : p.y; }
__device__ __forceinline__ uint32_t word_of(uint32_t p, int) { return p; }

template <int kC>
__device__ __forceinline__ Pixel<kC> black() {
  if constexpr (kC > 2)
    return {kBlack, kC == 3 ? kBlackBlue : kBlack};
  else
    return static_cast<Pixel<kC>>(kBlack);
}

// ------------------------------------------------------------------------------------------------ pixels as numbers
template <int kC>
struct Raw {  // 1 + (255/256) x of a pixel's channels
  float c[kC];
};

constexpr uint32_t kOne = 0x3f800000u;                // 1.f, whose first and last byte a code gets
constexpr uint32_t kLower = 0x7104, kUpper = 0x7324;  // of the code in a word's lower or upper half, for permuted()

template <int kC, class P>
__device__ __forceinline__ float decode(P p, int c) {  // of one channel
  if constexpr (kC == 3)                               // 0xf: the sign of 0x3f, eight times
    return from_bits(static_cast<int32_t>(permuted(word_of(p, c), p.y, c == 1 ? 0x732f : 0x710f)));
  else
    return from_bits(static_cast<int32_t>(permuted(word_of(p, c), kOne, c % 2 ? kUpper : kLower)));
}
template <int kC, class P>
__device__ __forceinline__ Raw<kC> decode(P p) {
  Raw<kC> raw;
#pragma unroll
  for (int c = 0; c < kC; ++c) raw.c[c] = decode<kC>(p, c);
  return raw;
}

// The same for what may be out of the image, and then is black.
class Decoder {
  uint32_t lower, upper;  // where the bytes are, in a word and in kOne
 public:
  __device__ explicit Decoder(bool inside) : lower(inside ? kLower : 0x7654), upper(inside ? kUpper : 0x7654) {}
  template <class P>
  __device__ __forceinline__ float operator()(P p, int c) const {
    return from_bits(static_cast<int32_t>(permuted(word_of(p, c), kOne, c % 2 ? upper : lower)));
  }
};

// v 256/255 to nearest: a color map of frequency 500 makes 1e-4 of the last bit.
__device__ __forceinline__ float nearest(float v) {
  const float q = v * kUp;
  return fmaf(fmaf(-q, kDown, v), kUp, q);
}

// A thread makes two neighboring columns and some rows of an image, row by row: put(r, x) takes row r of them, x in
// [0, 1]. What does not depend on the row is made once for all rows.
template <int kC>
using Two = float[2][kC];  // [column][channel]

template <int kC>
__device__ __forceinline__ Pair<kC> encode(const Two<kC>& x) {
  const float half_step = 1.f / 65536.f;
  const auto raw = [&](float x) { return static_cast<uint32_t>(bits(fmaf(x, kDown, 1.f + half_step))); };
  const auto codes = [&](float x, float y) { return permuted(raw(x), raw(y), 0x6521); };
  if constexpr (kC == 1)
    return codes(x[0][0], x[1][0]);
  else if constexpr (kC == 2)
    return {codes(x[0][0], x[0][1]), codes(x[1][0], x[1][1])};
  else if constexpr (kC == 3)
    return {codes(x[0][0], x[0][1]), permuted(raw(x[0][2]), raw(x[0][2]), 0x3321), codes(x[1][0], x[1][1]),
            permuted(raw(x[1][2]), raw(x[1][2]), 0x3321)};
  else
    return {codes(x[0][0], x[0][1]), codes(x[0][2], x[0][3]), codes(x[1][0], x[1][1]), codes(x[1][2], x[1][3])};
}

template <class P>
__device__ __forceinline__ uint32_t level(P p, int c) {  // of an 8-bit value
  return word_of(p, c) >> (c % 2 ? 23 : 7) & 0xff;
}

__device__ __forceinline__ float byte_value(uint32_t level) {  // level / 255 to nearest, as on the CPU
  return nearest(static_cast<float>(level) * (1.f / 256.f));
}

__device__ __forceinline__ float word_value(uint32_t word) {  // word / 65535 to nearest, as on the CPU
  const float v = static_cast<float>(word), q = v * (1.f / 65535.f);
  return fmaf(fmaf(-q, 65535.f, v), 1.f / 65535.f, q);
}

// ------------------------------------------------------------------------------------------------ a thread's pixels
// Rows that stay in registers for the pointwise slots after a filter or a displacement.
template <int kC>
struct Patch {
  Two<kC> v[kStrip];
};

struct Place {
  int x, y;  // of the first pixel; x is even
  __device__ Place(int x, int y) : x(x), y(y) {}
  __device__ Place(const ImageShape& shape, int thread) {
    const int at = blockIdx.x * kThreads + thread, strip = __umulhi(at, shape.per_pair);  // at / pairs
    x = 2 * (at - strip * shape.pairs), y = kRows * strip;  // threads past the end do as the others, and write nothing
  }
};

// One image of the workspace.
template <int kC>
struct Source {
  const Pixel<kC>* pixels;
  int height, width, pitch;
  __device__ Source(const void* pixels, const ImageShape& shape)
      : pixels(static_cast<const Pixel<kC>*>(pixels)), height(shape.height), width(shape.width), pitch(shape.pitch) {}
  __device__ const Pixel<kC>* at(int y, int x) const { return pixels + static_cast<unsigned>(y * pitch + x); }
};

// Two neighboring pixels, the first in an even column.
template <int kC>
__device__ __forceinline__ Pair<kC> load_pair(const Pixel<kC>* from) {
  return __ldg(reinterpret_cast<const Pair<kC>*>(from));
}

// What `to_x` makes of each value: to_x(pixel, channel).
template <int kCount, int kC, class ToX, class Put>
__device__ __forceinline__ void read(const Source<kC>& s, Place o, ToX to_x, Put put) {
#pragma unroll 2
  for (int r = 0; r < kCount; ++r) {
    const Pair<kC> pair = load_pair<kC>(s.at(min(o.y + r, s.height - 1), o.x));
    Two<kC> v;
#pragma unroll
    for (int c = 0; c < kC; ++c) v[0][c] = to_x(left_of(pair), c), v[1][c] = to_x(right_of(pair), c);
    put(r, v);
  }
}

}  // namespace prime
