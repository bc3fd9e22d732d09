// As many float32 numbers as a register holds, as one value, so that the templates of core/ vectorize without relying
// on the compiler's luck: sixteen on AVX-512, eight on AVX2, four on ARM. GCC and Clang vector extensions; on any other
// processor eight, and what the compiler makes of them.
#pragma once
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "../core/math.h"
#include "cpu.h"

namespace prime {
inline namespace PRIME_INSTRUCTIONS {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 8;
#endif
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Uints __attribute__((vector_size(4 * kLanes)));

struct IntLanes {
  Ints v;
};
struct UintLanes {
  Uints v;
  UintLanes() = default;
  UintLanes(Uints x) : v(x) {}
  UintLanes(uint32_t x) : v(Uints{} + x) {}
  static UintLanes ramp() {  // 0, 1, 2, ...
    UintLanes r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<uint32_t>(i);
    return r;
  }
};
struct Lanes {
  Floats v;
  Lanes() = default;
  Lanes(Floats x) : v(x) {}
  explicit Lanes(float x) : v(x - Floats{}) {}  // which keeps -0, and so costs no addition
  static Lanes load(const float* p) {
    Lanes r;
    memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  void store(float* p) const { memcpy(p, &v, sizeof v); }
};

}  // namespace PRIME_INSTRUCTIONS

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

inline IntLanes bits(Lanes x) { return {reinterpret_cast<Ints>(x.v)}; }
inline Lanes from_bits(IntLanes i) { return reinterpret_cast<Floats>(i.v); }
inline IntLanes as_int(UintLanes u) { return {reinterpret_cast<Ints>(u.v)}; }
inline Lanes to_float(IntLanes i) { return __builtin_convertvector(i.v, Floats); }
inline Lanes select(IntLanes condition, Lanes yes, Lanes no) { return condition.v != 0 ? yes.v : no.v; }
inline Lanes clip01(Lanes x) {
  const Floats zero{}, one = zero + 1.f;
  const Floats low = x.v < zero ? zero : x.v;
  return low > one ? one : low;
}

#if defined(__AVX512F__)
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return Floats(_mm512_fmadd_ps(a.v, b.v, c.v)); }
inline Lanes sqrt(Lanes x) { return Floats(_mm512_sqrt_ps(x.v)); }
inline Lanes floor(Lanes x) { return Floats(_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)); }
inline void multiply(uint32_t a, UintLanes b, UintLanes& high, UintLanes& low) {
  const __m512i x = reinterpret_cast<__m512i>(b.v), factor = _mm512_set1_epi64(a);
  const __m512i even = _mm512_mul_epu32(x, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);
  low = reinterpret_cast<Uints>(_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32)));
  high = reinterpret_cast<Uints>(_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd));
}
#elif defined(__AVX2__) && defined(__FMA__)
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return Floats(_mm256_fmadd_ps(a.v, b.v, c.v)); }
inline Lanes sqrt(Lanes x) { return Floats(_mm256_sqrt_ps(x.v)); }
inline Lanes floor(Lanes x) { return Floats(_mm256_floor_ps(x.v)); }
inline void multiply(uint32_t a, UintLanes b, UintLanes& high, UintLanes& low) {
  const __m256i x = reinterpret_cast<__m256i>(b.v), factor = _mm256_set1_epi64x(a);
  const __m256i even = _mm256_mul_epu32(x, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  low = reinterpret_cast<Uints>(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA));
  high = reinterpret_cast<Uints>(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA));
}
#elif defined(__aarch64__)
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return Floats(vfmaq_f32(c.v, a.v, b.v)); }
inline Lanes sqrt(Lanes x) { return Floats(vsqrtq_f32(x.v)); }
inline Lanes floor(Lanes x) { return Floats(vrndmq_f32(x.v)); }
inline void multiply(uint32_t a, UintLanes b, UintLanes& high, UintLanes& low) {
  const uint32x4_t lower = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(b.v), a)),  // low, high of each product
      upper = vreinterpretq_u32_u64(vmull_high_n_u32(b.v, a));
  low = Uints(vuzp1q_u32(lower, upper));
  high = Uints(vuzp2q_u32(lower, upper));
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

// Two values worked on side by side, each of which would wait for its own last result: nested, four.
template <class T>
struct Two {
  T a, b;
  Two() = default;
  Two(T a, T b) : a(a), b(b) {}
  explicit Two(float x) : a(x), b(x) {}
};

template <class T>
Two<T> operator+(Two<T> x, Two<T> y) {
  return {x.a + y.a, x.b + y.b};
}
template <class T>
Two<T> operator-(Two<T> x, Two<T> y) {
  return {x.a - y.a, x.b - y.b};
}
template <class T>
Two<T> operator*(Two<T> x, Two<T> y) {
  return {x.a * y.a, x.b * y.b};
}
template <class T>
Two<T> operator^(Two<T> x, Two<T> y) {
  return {x.a ^ y.a, x.b ^ y.b};
}
template <class T>
Two<T> operator+(Two<T> x, int32_t y) {
  return {x.a + y, x.b + y};
}
template <class T>
Two<T> operator&(Two<T> x, int32_t y) {
  return {x.a & y, x.b & y};
}
template <class T>
Two<T> operator<<(Two<T> x, int n) {
  return {x.a << n, x.b << n};
}
template <class T>
Two<T> fma(Two<T> x, Two<T> y, Two<T> z) {
  return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)};
}
template <class T>
Two<T> floor(Two<T> x) {
  return {floor(x.a), floor(x.b)};
}
template <class T>
Two<T> clip01(Two<T> x) {
  return {clip01(x.a), clip01(x.b)};
}
template <class T>
auto bits(Two<T> x) {
  return Two<decltype(bits(x.a))>{bits(x.a), bits(x.b)};
}
template <class T>
auto from_bits(Two<T> x) {
  return Two<decltype(from_bits(x.a))>{from_bits(x.a), from_bits(x.b)};
}
template <class C, class T>
Two<T> select(Two<C> condition, Two<T> yes, Two<T> no) {
  return {select(condition.a, yes.a, no.a), select(condition.b, yes.b, no.b)};
}

}  // namespace prime
