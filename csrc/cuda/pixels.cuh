// Pixels in memory and in registers.
//
// Images in the workspace hold a pixel in 8 bytes: red, green and blue as 16-bit fixed point, 0x8000 + round(32640 x),
// and 16 bits that begin with 0x3f. 32640 is 128 x 255, so every byte is exact; other values are off by 1/65280 at
// most. The code is the middle of a float32 in [1, 2): one byte permutation, which takes 0x3f from the pixel itself,
// makes 1 + (255/256) x of it.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "device.cuh"
#include "work.cuh"

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

__device__ __forceinline__ float load_unchecked(const ApplyArgs& a, int64_t at) {
  switch (a.in_type) {
    case DType::u8: return byte_value(static_cast<const uint8_t*>(a.in)[at]);
    case DType::f16: return __half2float(static_cast<const __half*>(a.in)[at]);
    case DType::bf16: return bf16_to_float(static_cast<const uint16_t*>(a.in)[at]);
    default: return static_cast<const float*>(a.in)[at];
  }
}
__device__ __forceinline__ float load(const ApplyArgs& a, int64_t at) {
  const float v = load_unchecked(a, at);
  return a.in_type == DType::u8 ? v : checked(v);
}

template <DType kType>
struct Stored {
  using Value = float;
};
template <>
struct Stored<DType::u8> {
  using Value = uint8_t;
};
template <>
struct Stored<DType::f16> {
  using Value = __half;
};
template <>
struct Stored<DType::bf16> {
  using Value = uint16_t;
};

template <DType kType>
__device__ __forceinline__ typename Stored<kType>::Value stored(float y) {
  if constexpr (kType == DType::u8)
    return float_to_u8(y);
  else if constexpr (kType == DType::f16)
    return __float2half_rn(y);
  else if constexpr (kType == DType::bf16)
    return float_to_bf16(y);
  else
    return y;
}

// Two neighbouring values, where addresses are multiples of two.
template <DType kType>
__device__ __forceinline__ void store_two(typename Stored<kType>::Value* to, float y0, float y1) {
  if constexpr (kType == DType::u8)
    *reinterpret_cast<uchar2*>(to) = {float_to_u8(y0), float_to_u8(y1)};
  else if constexpr (kType == DType::f16)
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(y0, y1);
  else if constexpr (kType == DType::bf16)
    *reinterpret_cast<ushort2*>(to) = {float_to_bf16(y0), float_to_bf16(y1)};
  else
    *reinterpret_cast<float2*>(to) = {y0, y1};
}

// The color map of a band of at most 21 frequencies F - 10 .. F + 10, for values of one channel, in place:
//   sum_k b_{F+k} sin((F + k) t) = sin(F t) C(t) + cos(F t) D(t),   t = pi x,
//   C = sum_k (b_{F+k} + b_{F-k}) cos(k t) = E(s) + cos t O(s),
//   D = sum_k (b_{F+k} - b_{F-k}) sin(k t) = sin t (A(s) + cos t B(s)),   s = cos 2t,
// with polynomials E (degree 5), O, A, B (degree 4), whose coefficients parameter_role() in begin.cu has made.
template <int N>
__device__ __forceinline__ void color_polynomial(float* (&x)[N], const float* parameters) {
  float k[kPolynomialWords];
#pragma unroll
  for (int i = 0; i < kPolynomialWords; i += 4) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(parameters + i));
    k[i] = four.x, k[i + 1] = four.y, k[i + 2] = four.z, k[i + 3] = four.w;
  }
  const float half_frequency = k[21];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float v = *x[i], t = 3.14159265f * v, sine = __sinf(t), cosine = __cosf(t);
    const float s = fmaf(-2.f * sine, sine, 1.f);
    const float e = fmaf(fmaf(fmaf(fmaf(fmaf(k[5], s, k[4]), s, k[3]), s, k[2]), s, k[1]), s, k[0]);
    const float o = fmaf(fmaf(fmaf(fmaf(k[10], s, k[9]), s, k[8]), s, k[7]), s, k[6]);
    const float a = fmaf(fmaf(fmaf(fmaf(k[15], s, k[14]), s, k[13]), s, k[12]), s, k[11]);
    const float b = fmaf(fmaf(fmaf(fmaf(k[20], s, k[19]), s, k[18]), s, k[17]), s, k[16]);
    const float c = fmaf(cosine, o, e), d = sine * fmaf(cosine, b, a);
    // F t = 2 pi turns; whole turns are taken off exactly, for the product is not rounded before the subtraction.
    const float magic = 12582912.f, whole = fmaf(v, half_frequency, magic) - magic;
    const float angle = 6.28318531f * fmaf(v, half_frequency, -whole);
    *x[i] = clipped_fma(__cosf(angle), d, fmaf(__sinf(angle), c, v));
  }
}

}  // namespace prime
