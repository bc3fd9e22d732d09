// The color primitive: x + sum over f of b_f sin(pi f x), clipped, a channel at a time. It runs in one of three forms:
//   a table of 256 values   color maps that a chain of byte images begins with (tabulate(), for table.cuh);
//   polynomials             bands of at most kPolynomial frequencies (make_parameters(), color_polynomial());
//   the sum itself          wider bands (color_map() of core/color.h, by wide_color()).
// prepare.cu makes tables and parameters; a pass evaluates them (pointwise() in passes.cuh).
#pragma once
#include "pixels.cuh"
#include "slots.cuh"

namespace prime {

constexpr int kPolynomial = 21;       // a color band of at most so many frequencies is evaluated as polynomials
constexpr int kPolynomialWords = 24;  // per channel: their 21 coefficients, half the middle frequency, and padding

// ------------------------------------------------------------------------------------------- basis and coefficients
// Chebyshev polynomials of s = cos 2t as monomials: cos 2it = T_i, cos (2i+1)t = cos t V_i, sin (2i+1)t = sin t W_i,
// sin (2i+2)t = sin t cos t 2 U_i.
static __constant__ float kT[6][6] = {{1, 0, 0, 0, 0, 0},  {0, 1, 0, 0, 0, 0},  {-1, 0, 2, 0, 0, 0},
                                      {0, -3, 0, 4, 0, 0}, {1, 0, -8, 0, 8, 0}, {0, 5, 0, -20, 0, 16}};
static __constant__ float kV[5][5] = {
    {1, 0, 0, 0, 0}, {-1, 2, 0, 0, 0}, {-1, -2, 4, 0, 0}, {1, -4, -4, 8, 0}, {1, 4, -12, -8, 16}};
static __constant__ float kW[5][5] = {
    {1, 0, 0, 0, 0}, {1, 2, 0, 0, 0}, {-1, 2, 4, 0, 0}, {-1, -4, 4, 8, 0}, {1, -4, -12, 8, 16}};
static __constant__ float kU[5][5] = {
    {2, 0, 0, 0, 0}, {0, 4, 0, 0, 0}, {-2, 0, 8, 0, 0}, {0, -8, 0, 16, 0}, {2, 0, -24, 0, 32}};

// Room for what make_parameters() makes: [channels, kPolynomialWords], or of a wide band [channels, count], the
// coefficients b_f.
inline int parameter_words(Color, const PlanShape& shape, int channels) {
  return channels * (shape.max_band > kPolynomial ? (shape.max_band + 3) / 4 * 4 : kPolynomialWords);
}

// The coefficients of a color band, by one warp: of polynomials where the band is narrow.
__device__ __forceinline__ void make_parameters(Color, const PlanShape&, const WarpSlot& w) {
  const Slot s = w.slot;
  const int count = s.last - s.first + 1, middle = count / 2, lane = threadIdx.x % 32;
  for (int c = 0; c < w.channels; ++c) {
    if (count > kPolynomial) {
      warp_run(count, w.key, w.chain, w.j, Purpose::color, w.first_channel + c,
               [&](int i, float z) { w.out[c * count + i] = z * s.strength; });
      continue;
    }
    float* band = w.shared;
    warp_run(count, w.key, w.chain, w.j, Purpose::color, w.first_channel + c,
             [&](int i, float z) { band[i] = z * s.strength; });
    const auto b = [&](int k) { return middle + k >= 0 && middle + k < count ? band[middle + k] : 0.f; };
    float sum = 0.f;
    if (lane < 6)
      for (int i = 0; i < 6; ++i) sum = fmaf(b(2 * i) + (i ? b(-2 * i) : 0.f), kT[i][lane], sum);
    else if (lane < 11)
      for (int i = 0; i < 5; ++i) sum = fmaf(b(2 * i + 1) + b(-2 * i - 1), kV[i][lane - 6], sum);
    else if (lane < 16)
      for (int i = 0; i < 5; ++i) sum = fmaf(b(2 * i + 1) - b(-2 * i - 1), kW[i][lane - 11], sum);
    else if (lane < 21)
      for (int i = 0; i < 5; ++i) sum = fmaf(b(2 * i + 2) - b(-2 * i - 2), kU[i][lane - 16], sum);
    else
      sum = 0.5f * static_cast<float>(s.first + middle);
    if (lane < kPolynomialWords) w.out[c * kPolynomialWords + lane] = sum;
    __syncwarp();
  }
}

// ------------------------------------------------------------------------------------------------------------ table
// A slot as a part of a table, by a block: what it makes of x, kC channels of a thread's byte, from first_channel of
// the image on. The coefficients go by way of the place for the slot's parameters.
template <int kC>
__device__ __forceinline__ void tabulate(Color, float (&x)[kC], Slot s, Key key, int chain, int j, int first_channel,
                                         float* coefficients) {
  const int count = s.last - s.first + 1, channel = threadIdx.x / 32;  // a warp each
  if (channel < kC)
    warp_run(count, key, chain, j, Purpose::color, first_channel + channel,
             [&](int i, float z) { coefficients[channel * count + i] = z * s.strength; });
  __syncthreads();
  for (int c = 0; c < kC; ++c) x[c] = color_map(x[c], coefficients + c * count, s.first, count);
}

// ------------------------------------------------------------------------------------------------------- evaluation
// The color map of a band of at most kPolynomial frequencies F - 10 .. F + 10, for values of one channel, in place:
//   sum_k b_{F+k} sin((F + k) t) = sin(F t) C(t) + cos(F t) D(t),   t = pi x,
//   C = sum_k (b_{F+k} + b_{F-k}) cos(k t) = E(s) + cos t O(s),
//   D = sum_k (b_{F+k} - b_{F-k}) sin(k t) = sin t (A(s) + cos t B(s)),   s = cos 2t,
// with polynomials E (degree 5), O, A, B (degree 4), whose coefficients make_parameters() has made.
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

// Long and rarely run: a function of its own.
static __device__ __noinline__ float wide_color(float x, const float* coefficients, int first, int count) {
  return color_map(x, coefficients, first, count);
}

__device__ __forceinline__ void evaluate(Color, float& left, float& right, const StepPlace& at) {
  const Step& s = at.step;
  const float* coefficients = s.parameters + at.channel * s.count;
  left = wide_color(left, coefficients, s.first, s.count);
  right = wide_color(right, coefficients, s.first, s.count);
}

}  // namespace prime
