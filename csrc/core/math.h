// Arithmetic that gives the same bits on every CPU and GPU.
//
// Everything is written once as a template over the scalar type: `float` on the GPU and in scalar CPU code, `Lanes`
// (eight floats, cpu/lanes.h) in vectorized CPU code. Only IEEE operations and explicit fused multiply-adds are used,
// and both compilers are told not to contract anything else, so a plan drawn on a CPU equals one drawn on a GPU.
#pragma once
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PRIME_HD __host__ __device__ __forceinline__
#else
#define PRIME_HD inline
#endif

namespace prime {

PRIME_HD float fma(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

PRIME_HD float sqrt(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

PRIME_HD float floor(float x) {
#ifdef __CUDA_ARCH__
  return floorf(x);
#else
  return __builtin_floorf(x);
#endif
}

PRIME_HD int32_t bits(float x) {
  int32_t i;
  memcpy(&i, &x, sizeof i);
  return i;
}

PRIME_HD float from_bits(int32_t i) {
  float x;
  memcpy(&x, &i, sizeof x);
  return x;
}

PRIME_HD float not_a_number() { return from_bits(0x7fc00000); }

PRIME_HD float to_float(int32_t i) { return static_cast<float>(i); }
PRIME_HD float select(int32_t condition, float yes, float no) { return condition ? yes : no; }

// NaN stays NaN: a pixel that was not a number in the input must not look like one in the output.
PRIME_HD float clip01(float x) { return x < 0.f ? 0.f : (x > 1.f ? 1.f : x); }

template <class F>
struct SinCos {
  F sin, cos;
};

// sin(pi x) and cos(pi x) for |x| < 2^21, to 1e-7. x is reduced exactly to r in [-1/4, 1/4], where two short
// polynomials (least squares on Chebyshev nodes) take over.
template <class F>
PRIME_HD SinCos<F> sincospi(F x) {
  const F magic(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits
  const F shifted = fma(x, F(2.f), magic);
  const F r = fma(shifted - magic, F(-0.5f), x);
  const auto quadrant = bits(shifted);
  const F r2 = r * r;
  F p = fma(F(0.0812302381f), r2, F(-0.599228859f));
  p = fma(p, r2, F(2.55016351f));
  p = fma(p, r2, F(-5.16771269f));
  const F pi_high(3.14159274f), pi_low(-8.74227766e-8f);
  const F s = fma(r, pi_high, fma(r, pi_low, (r * r2) * p));
  F q = fma(F(-0.0255070403f), r2, F(0.235314265f));
  q = fma(q, r2, F(-1.33526242f));
  q = fma(q, r2, F(4.05871201f));
  q = fma(q, r2, F(-4.93480206f));
  const F c = fma(q, r2, F(1.f));
  const auto swapped = quadrant & 1;
  const F sine = select(swapped, c, s), cosine = select(swapped, s, c);
  return {from_bits(bits(sine) ^ ((quadrant & 2) << 30)), from_bits(bits(cosine) ^ (((quadrant + 1) & 2) << 30))};
}

// ln(x) for normal positive x, relative error 1e-7: x = 2^e (1 + f) with f in [-1/3, 1/3].
template <class F>
PRIME_HD F log(F x) {
  const auto i = bits(x);
  const auto e = (i - 0x3f2aaaab) & static_cast<int32_t>(0xff800000u);
  const F f = from_bits(i - e) - F(1.f);
  F p = fma(F(0.116195031f), f, F(-0.124298662f));
  p = fma(p, f, F(0.108516634f));
  p = fma(p, f, F(-0.122872368f));
  p = fma(p, f, F(0.142962918f));
  p = fma(p, f, F(-0.16673398f));
  p = fma(p, f, F(0.199998513f));
  p = fma(p, f, F(-0.249999434f));
  p = fma(p, f, F(0.333333343f));
  const F exponent = to_float(e) * F(1.1920929e-7f);  // 2^-23
  const F tail = fma(f * f, fma(f, p, F(-0.5f)), exponent * F(-2.12194440e-4f));
  return fma(exponent, F(0.693359375f), f + tail);
}

}  // namespace prime
