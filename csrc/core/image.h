// Images in memory, and one call's arguments. Plain pointers and strides: any array library can fill these in.
#pragma once
#include "plan.h"

namespace prime {

enum class DType : int { u8 = 0, f16 = 1, bf16 = 2, f32 = 3 };

// [images, 3, height, width] with any strides, in elements.
struct Strides {
  int64_t n, c, h, w;
};

struct ApplyArgs {
  const void* in;
  DType in_type;
  Strides in_strides;
  void* out;
  DType out_type;
  Strides out_strides;
  const int32_t* plan;  // [rows, row_words(chains, depth)]; row r is a view of image r % images
  int64_t rows, images;
  int height, width, chains, depth;
  int filter;               // side of the spectral filter, odd
  int max_cut;              // no spatial cut in the plan is larger; 0: the plan has no spatial slot
  int max_band;             // no color band in the plan holds more frequencies; 0: the plan has no color slot
  const uint8_t* flip;      // [images] or null; not 0: this image's outputs are mirrored left to right
  float mean[3], scale[3];  // out = (y - mean) * scale, per channel
};

// Values outside [0, 1] are the caller's mistake; they become NaN, so that they can be seen and never spread quietly.
PRIME_HD float checked(float x) { return x >= 0.f && x <= 1.f ? x : not_a_number(); }

PRIME_HD float bf16_to_float(uint16_t h) { return from_bits(static_cast<int32_t>(static_cast<uint32_t>(h) << 16)); }

PRIME_HD uint16_t float_to_bf16(float x) {  // to nearest, ties to even
  const uint32_t u = static_cast<uint32_t>(bits(x));
  if (x != x) return 0x7fc0;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

PRIME_HD uint8_t float_to_u8(float y) {  // y in [0, 1] but for rounding; to nearest, ties to even
  return static_cast<uint8_t>(bits(fma(clip01(y), 255.f, 12582912.f)) & 0xff);
}

}  // namespace prime
