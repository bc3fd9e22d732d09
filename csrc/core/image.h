// Images in memory, and the arguments of one call. Plain pointers and strides: any array library can fill these in.
#pragma once
#include "plan.h"

namespace prime {

enum class DType : int { u8 = 0, f16 = 1, bf16 = 2, f32 = 3, u16 = 4 };

// [images, channels, height, width] with any strides, in elements.
struct Strides {
  int64_t n, c, h, w;
};

// What was found in float inputs that is no pixel (see checked()). All zeros: nothing.
struct BadPixels {
  unsigned long long values;  // how many, NaN included
  uint32_t any_nan;           // 1: some are NaN
  // How far the others reach down and up, in the order of rank(), so that each only grows.
  uint32_t below, above;
  PRIME_HD void add(float x) {
    ++values;
    if (x != x) return void(any_nan = 1);
    const uint32_t r = rank(x);
    below = below > ~r ? below : ~r, above = above > r ? above : r;
  }
  void add(const BadPixels& other) {
    values += other.values, any_nan |= other.any_nan;
    below = below > other.below ? below : other.below, above = above > other.above ? above : other.above;
  }
  float lowest() const { return of_rank(~below); }
  float highest() const { return of_rank(above); }
  // A number above 0 that rises with x, which is not NaN; and back.
  PRIME_HD static uint32_t rank(float x) {
    const uint32_t u = static_cast<uint32_t>(bits(x));
    return u >> 31 ? ~u : u | 0x80000000u;
  }
  static float of_rank(uint32_t r) { return from_bits(static_cast<int32_t>(r >> 31 ? r & 0x7fffffffu : ~r)); }
};

struct ApplyArgs {
  const void* in;
  DType in_type;
  Strides in_strides;
  void* out;
  DType out_type;
  Strides out_strides;
  const int32_t* plan;  // [rows, row_words(shape)]; row r is a view of image r % images
  int64_t rows, images;
  int channels, height, width;
  PlanShape shape;      // of the plan
  const uint8_t* flip;  // [images] or null; not 0: this image's outputs are mirrored left to right
  float mean[kMaxChannels], scale[kMaxChannels];  // out = (y - mean) * scale, per channel
  BadPixels* bad;  // CUDA: host memory that kernels add to (new_bad_pixels() of cuda/cuda.h), or null; CPU: unused
};

// Floats off [0, 1] by so much at most are rounding, as of a resize, and are clamped. PIXEL_TOLERANCE in
// prime_dali/_arguments.py is the same.
constexpr float kPixelTolerance = 1.f / 512.f;

// A value of a float input as a pixel. One that is further off is the caller's mistake: it becomes NaN, so that it can
// be seen and never spreads quietly, and is counted in BadPixels, so that somebody is told.
PRIME_HD float checked(float x) {
  const float pixel = clip01(x), off = x - pixel;  // exact where it decides; one comparison, which CPU loops vectorize
  return (off < 0.f ? -off : off) <= kPixelTolerance ? pixel : not_a_number();
}

PRIME_HD float bf16_to_float(uint16_t h) { return from_bits(static_cast<int32_t>(static_cast<uint32_t>(h) << 16)); }

PRIME_HD uint16_t float_to_bf16(float x) {  // to nearest, ties to even
  const uint32_t u = static_cast<uint32_t>(bits(x));
  if (x != x) return 0x7fc0;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

PRIME_HD uint8_t float_to_u8(float y) {                     // y in [0, 1] but for rounding; to nearest, ties to even
  const float pixel = y > 0.f ? (y < 1.f ? y : 1.f) : 0.f;  // NaN is black
  return static_cast<uint8_t>(bits(fma(pixel, 255.f, 12582912.f)) & 0xff);
}

PRIME_HD uint16_t float_to_u16(float y) {  // the same in steps of 1 / 65535
  const float pixel = y > 0.f ? (y < 1.f ? y : 1.f) : 0.f;
  return static_cast<uint16_t>(bits(fma(pixel, 65535.f, 12582912.f)) & 0xffff);
}

}  // namespace prime
