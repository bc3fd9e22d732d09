// Moves pixels by a displacement field: bilinear interpolation at the shifted place.
#pragma once
#include "encoding.cuh"

namespace prime {

// Where to read along one axis, clamped to the image: the last pixel before that point but one that has a next one, as
// kMagic and its number, and the next one's weight. `last`: kMagic and the number of the last pixel but one. The shift
// is quantization_step * code less what `at` has more than kMagic and the pixel's own number. The weight is the exact
// fraction: at pixel 4000 a float32 sum would lose half its digits.
constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: a sum with it is a whole number, in its low bits
constexpr uint32_t kMagicBits = 0x4b400000;
__device__ __forceinline__ float displaced(float code, float quantization_step, float at, float last, float& next) {
  const float whole = fminf(fmaxf(__fmaf_rd(-quantization_step, code, at), kMagic), last);
  next = clipped_fma(-quantization_step, code, at - whole);
  return whole;
}

template <int kCount, int kC, class Put>
__device__ __forceinline__ void displace(const Source<kC>& s, Place o, const uint2* field, float quantization_step,
                                         Put put) {
  const float zero = kMagic + (quantization_step == kWide ? 0.f : quantization_step * kCodeZero);  // a whole number
  const float bottom = kMagic + static_cast<float>(s.height - 2), right = kMagic + static_cast<float>(s.width - 2);
  const float at_x = zero + static_cast<float>(o.x);
  float at_y = zero + static_cast<float>(o.y);
  const Pixel<kC>* upper_pixels = s.pixels;
  const Pixel<kC>* lower_pixels = s.pixels + s.pitch;
  const uint32_t origin = -kMagicBits * (s.pitch + 1);  // so that whole numbers can stay as they are
#pragma unroll 1
  for (int row = 0; row < kCount && row < s.height - o.y; row += kStrip) {
    float shift[kStrip][2][2];
    read_shifts(shift, field, quantization_step == kWide, s, {o.x, o.y + row});
#pragma unroll
    for (int r = 0; r < kStrip; ++r) {
      Two<kC> v;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float next_y, next_x;
        const float down = displaced(shift[r][i][0], quantization_step, at_y, bottom, next_y);
        const float across = displaced(shift[r][i][1], quantization_step, at_x + static_cast<float>(i), right, next_x);
        const uint32_t at = static_cast<uint32_t>(bits(down)) * s.pitch + origin + static_cast<uint32_t>(bits(across));
        const auto load = [&](const Pixel<kC>* corner) { return decode<kC>(__ldg(corner + at)); };
        const Raw<kC> a = load(upper_pixels), b = load(upper_pixels + 1), c = load(lower_pixels),
                      d = load(lower_pixels + 1);
        // x is kUp (raw - 1): the weights carry kUp, so their sum takes the 1 off.
        const float lower = next_y * kUp, upper = kUp - lower;
        const float right_lower = next_x * lower, right_upper = next_x * upper;
        const float left_lower = lower - right_lower, left_upper = upper - right_upper;
#pragma unroll
        for (int k = 0; k < kC; ++k)
          v[i][k] = clipped_fma(right_lower, d.c[k],
                                fmaf(left_lower, c.c[k], fmaf(right_upper, b.c[k], fmaf(left_upper, a.c[k], -kUp))));
      }
      put(row + r, v);
      at_y += 1.f;
    }
  }
}

template <bool kAny, int kCount, int kC, class Put>
__device__ __forceinline__ void move_pixels(Spatial, const Source<kC>& s, Place o, const Pass& pass, int, Put put) {
  displace<kCount>(s, o, static_cast<const uint2*>(pass.operand), pass.quantization_step, put);
}

}  // namespace prime
