// Pixels in memory and in registers.
//
// Images in the workspace hold a pixel in 8 bytes: three channels (red, green and blue) as 16-bit fixed point, 0x8000 +
// round(32640 x), and 16 bits that begin with 0x3f. 32640 is 128 x 255, so every byte is exact; other values are off by
// 1/65280 at most. The code is the middle of a float32 in [1, 2): one byte permutation, which takes 0x3f from the pixel
// itself, makes 1 + (255/256) x of it.
#pragma once
#include <cuda_fp16.h>

#include "device.cuh"
#include "views.cuh"

namespace prime {

constexpr float kUp = 256.f / 255.f, kDown = 255.f / 256.f;
constexpr uint32_t kBlack = 0x80008000u, kBlackBlue = 0x3f008000u;  // the two words of a pixel

struct Raw {  // 1 + (255/256) x of a pixel's channels
  float c[3];
};

__device__ __forceinline__ float decode(uint2 p, int c) {  // of one channel
  // 0xf: the sign of 0x3f, eight times
  return from_bits(static_cast<int32_t>(permuted(c < 2 ? p.x : p.y, p.y, c == 1 ? 0x732f : 0x710f)));
}
__device__ __forceinline__ Raw decode(uint2 p) { return {{decode(p, 0), decode(p, 1), decode(p, 2)}}; }

// The same for what may be out of the image, and then is black.
class Decoder {
  uint32_t low, high;  // where the bytes are, in a word and in the bits of 1
 public:
  __device__ explicit Decoder(bool inside) : low(inside ? 0x7104 : 0x7654), high(inside ? 0x7324 : 0x7654) {}
  __device__ __forceinline__ float operator()(uint2 p, int c) const {
    return from_bits(static_cast<int32_t>(permuted(c < 2 ? p.x : p.y, 0x3f800000u, c == 1 ? high : low)));
  }
};

// v 256/255 to nearest: a color map of frequency 500 makes 1e-4 of the last bit.
__device__ __forceinline__ float nearest(float v) {
  const float q = v * kUp;
  return fmaf(fmaf(-q, kDown, v), kUp, q);
}

// x in [0, 1].
__device__ __forceinline__ uint2 encode(const float (&x)[3]) {
  const float half_step = 1.f / 65536.f;
  const auto raw = [&](int c) { return static_cast<uint32_t>(bits(fmaf(x[c], kDown, 1.f + half_step))); };
  return {permuted(raw(0), raw(1), 0x6521), permuted(raw(2), raw(2), 0x3321)};
}

__device__ __forceinline__ uint32_t level(uint2 p, int c) {  // of an 8-bit value
  return (c < 2 ? p.x : p.y) >> (c == 1 ? 23 : 7) & 0xff;
}

__device__ __forceinline__ float byte_value(uint32_t level) {  // level / 255 to nearest, as on the CPU
  return nearest(static_cast<float>(level) * (1.f / 256.f));
}

__device__ __forceinline__ float word_value(uint32_t word) {  // word / 65535 to nearest, as on the CPU
  const float v = static_cast<float>(word), q = v * (1.f / 65535.f);
  return fmaf(fmaf(-q, 65535.f, v), 1.f / 65535.f, q);
}

// A thread makes two neighboring columns and some rows of an image, row by row: put(r, x) takes row r of them, x in
// [0, 1]. What does not depend on the row is made once for all rows.
using Two = float[2][3];  // [column][channel]

// Rows that stay in registers for the pointwise slots after a filter or a displacement.
struct Patch {
  Two v[kStrip];
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
struct Source {
  const uint2* pixels;
  int height, width, pitch;
  __device__ Source(const uint2* pixels, const ImageShape& shape)
      : pixels(pixels), height(shape.height), width(shape.width), pitch(shape.pitch) {}
  __device__ const uint2* at(int y, int x) const { return pixels + static_cast<unsigned>(y * pitch + x); }
};

// What `to_x` makes of each value: to_x(pixel, channel).
template <int kCount, class ToX, class Put>
__device__ __forceinline__ void read(const Source& s, Place o, ToX to_x, Put put) {
#pragma unroll 2
  for (int r = 0; r < kCount; ++r) {
    const uint4 two = __ldg(reinterpret_cast<const uint4*>(s.at(min(o.y + r, s.height - 1), o.x)));
    Two v;
#pragma unroll
    for (int c = 0; c < 3; ++c) v[0][c] = to_x({two.x, two.y}, c), v[1][c] = to_x({two.z, two.w}, c);
    put(r, v);
  }
}

}  // namespace prime
