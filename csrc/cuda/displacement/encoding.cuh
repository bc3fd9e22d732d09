// How shifts are written and read: see precision.h for what is kept.
#pragma once
#include "../pixels.cuh"
#include "precision.h"

namespace prime {

// Shifts as codes; times `scale`, they are in quantization steps of the field.
__device__ __forceinline__ uint32_t codes(float down, float right, float2 scale) {
  return __byte_perm(bits(fmaf(down, scale.x, kCodeZero)), bits(fmaf(right, scale.y, kCodeZero)), 0x5410);
}

struct Eight {  // shifts of columns x .. x + 3, W - 1 - x .. W - 4 - x
  float v[8];
};

// Stores up to eight pixels, rarely: of wide fields, and of the middle and the end of some widths. `at`: of column x.
static __device__ __noinline__ void store_some(uint2* field, bool wide, int at, int x, int width, Eight down,
                                               Eight right, float2 scale) {
  const auto store = [&](int at, float down, float right) {
    if (wide)
      reinterpret_cast<float2*>(field)[at] = {down * scale.x, right * scale.y};
    else
      reinterpret_cast<uint32_t*>(field)[at] = codes(down, right, scale);
  };
  const int last = at + width - 1 - 2 * x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (x + i < (width + 1) / 2) store(at + i, down.v[i], right.v[i]);
    if (x + i < width / 2) store(last - i, down.v[4 + i], right.v[4 + i]);
  }
  if (width % 2 && x == 0) store(last + 1, 0.f, 0.f);  // shifts are read two at a time
}

// Shifts of a patch as they are kept, codes as floats, [row][column][down, right].
template <int kC>
__device__ __forceinline__ void read_shifts(float (&shift)[kStrip][2][2], const uint2* field, bool wide,
                                            const Source<kC>& s, Place o) {
  const auto pair = [&](int r) { return static_cast<unsigned>(min(o.y + r, s.height - 1) * s.pitch + o.x) / 2; };
  if (wide) {
#pragma unroll
    for (int r = 0; r < kStrip; ++r) {
      const float4 two = __ldg(reinterpret_cast<const float4*>(field) + pair(r));
      shift[r][0][0] = two.x, shift[r][0][1] = two.y, shift[r][1][0] = two.z, shift[r][1][1] = two.w;
    }
    return;
  }
  uint2 two[kStrip];  // all asked for at once
#pragma unroll
  for (int r = 0; r < kStrip; ++r) two[r] = __ldg(field + pair(r));
#pragma unroll
  for (int r = 0; r < kStrip; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = __byte_perm(i / 2 ? two[r].y : two[r].x, kCodeBits, i % 2 ? 0x7632 : 0x7610);
      shift[r][i / 2][i % 2] = from_bits(static_cast<int32_t>(code));
    }
}

}  // namespace prime
