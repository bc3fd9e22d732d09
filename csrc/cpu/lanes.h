// Eight float32 numbers as one value, so that the templates of core/ vectorize without relying on the compiler's luck.
// GCC and Clang vector extensions: on AVX2 one register, elsewhere what the compiler makes of it.
#pragma once
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#include "../core/math.h"

namespace prime {

constexpr int kLanes = 8;
typedef float float8 __attribute__((vector_size(32)));
typedef int32_t int8 __attribute__((vector_size(32)));
typedef uint32_t uint8 __attribute__((vector_size(32)));

struct IntLanes {
  int8 v;
};
struct UintLanes {
  uint8 v;
  UintLanes() = default;
  UintLanes(uint8 x) : v(x) {}
  UintLanes(uint32_t x) : v(uint8{} + x) {}
};
struct Lanes {
  float8 v;
  Lanes() = default;
  Lanes(float8 x) : v(x) {}
  explicit Lanes(float x) : v(float8{} + x) {}
  static Lanes load(const float* p) {
    Lanes r;
    memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  void store(float* p) const { memcpy(p, &v, sizeof v); }
};

inline Lanes operator+(Lanes a, Lanes b) { return a.v + b.v; }
inline Lanes operator-(Lanes a, Lanes b) { return a.v - b.v; }
inline Lanes operator*(Lanes a, Lanes b) { return a.v * b.v; }
inline Lanes operator/(Lanes a, Lanes b) { return a.v / b.v; }

inline IntLanes operator&(IntLanes a, int32_t b) { return {a.v & b}; }
inline IntLanes operator+(IntLanes a, int32_t b) { return {a.v + b}; }
inline IntLanes operator-(IntLanes a, int32_t b) { return {a.v - b}; }
inline IntLanes operator-(IntLanes a, IntLanes b) { return {a.v - b.v}; }
inline IntLanes operator^(IntLanes a, IntLanes b) { return {a.v ^ b.v}; }
inline IntLanes operator<<(IntLanes a, int n) { return {a.v << n}; }

inline UintLanes operator^(UintLanes a, UintLanes b) { return a.v ^ b.v; }
inline UintLanes operator^(UintLanes a, uint32_t b) { return a.v ^ b; }
inline UintLanes operator+(UintLanes a, UintLanes b) { return a.v + b.v; }
inline UintLanes operator>>(UintLanes a, int n) { return a.v >> n; }

inline IntLanes bits(Lanes x) { return {reinterpret_cast<int8>(x.v)}; }
inline Lanes from_bits(IntLanes i) { return reinterpret_cast<float8>(i.v); }
inline IntLanes as_int(UintLanes u) { return {reinterpret_cast<int8>(u.v)}; }
inline Lanes to_float(IntLanes i) { return __builtin_convertvector(i.v, float8); }
inline Lanes select(IntLanes condition, Lanes yes, Lanes no) { return condition.v != 0 ? yes.v : no.v; }
inline Lanes clip01(Lanes x) {
  const float8 zero{}, one = zero + 1.f;
  const float8 low = x.v < zero ? zero : x.v;
  return low > one ? one : low;
}

#if defined(__AVX2__) && defined(__FMA__)
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return float8(_mm256_fmadd_ps(a.v, b.v, c.v)); }
inline Lanes sqrt(Lanes x) { return float8(_mm256_sqrt_ps(x.v)); }
inline Lanes floor(Lanes x) { return float8(_mm256_floor_ps(x.v)); }
inline void multiply(uint32_t a, UintLanes b, UintLanes& high, UintLanes& low) {
  const __m256i x = reinterpret_cast<__m256i>(b.v), factor = _mm256_set1_epi64x(a);
  const __m256i even = _mm256_mul_epu32(x, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  low = reinterpret_cast<uint8>(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA));
  high = reinterpret_cast<uint8>(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA));
}
#else
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  for (int i = 0; i < kLanes; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline Lanes sqrt(Lanes x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_sqrtf(x.v[i]);
  return x;
}
inline Lanes floor(Lanes x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_floorf(x.v[i]);
  return x;
}
inline void multiply(uint32_t a, UintLanes b, UintLanes& high, UintLanes& low) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product = static_cast<uint64_t>(a) * b.v[i];
    high.v[i] = static_cast<uint32_t>(product >> 32), low.v[i] = static_cast<uint32_t>(product);
  }
}
#endif

}  // namespace prime
