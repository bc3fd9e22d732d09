// The color primitive: x + sum over f of b_f sin(pi f x), clipped, a channel at a time. It runs in one of three forms:
//   a table of 256 values   color maps that a chain of byte images begins with (make_table(), load_table());
//   polynomials             bands of at most kPolynomial frequencies (make_coefficients(), color_polynomial());
//   the sum itself          wider bands (color_map() of core/primitives.h, by wide_color()).
// prepare.cu makes tables and coefficients; a pass evaluates them.
#pragma once
#include "pixels.cuh"
#include "slots.cuh"

namespace prime {

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

// The coefficients of a color band, by one warp: of polynomials where the band is narrow. `band`: room in shared
// memory.
__device__ __forceinline__ void make_coefficients(const Row<const int32_t>& plan, Slot s, int chain, int j, int lane,
                                                  float (&band_of_warp)[kWarps][kPolynomial], float* out) {
  const int count = s.last - s.first + 1, middle = count / 2;
  for (int c = 0; c < 3; ++c) {
    if (count > kPolynomial) {
      warp_run(count, plan.stream(), chain, j, Purpose::color, c,
               [&](int i, float z) { out[c * count + i] = z * s.strength; });
      continue;
    }
    float* band = band_of_warp[threadIdx.x / 32];
    warp_run(count, plan.stream(), chain, j, Purpose::color, c, [&](int i, float z) { band[i] = z * s.strength; });
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
    if (lane < kPolynomialWords) out[c * kPolynomialWords + lane] = sum;
    __syncwarp();
  }
}

// ------------------------------------------------------------------------------------------------------------ table
// The table of a chain, by a block; coefficients go by way of the place for the slot's parameters.
static __device__ void make_table(const PlanView& plan, const Parameters& parameters, Table* tables, int chain_index) {
  static_assert(kBegin == 256, "a thread a byte");
  const auto slot = [&](int j) { return slot_of(plan, chain_index, j); };
  const int slots = tabulated(plan, slot), chain = chain_index % plan.shape.chains;
  if (slots == 0) return;
  const Stream stream = plan.row(chain_index / plan.shape.chains).stream();
  float x[3];
  for (int c = 0; c < 3; ++c) x[c] = byte_value(threadIdx.x);
  for (int j = 0; j < slots; ++j) {
    const Slot s = slot(j);
    if (s.primitive != kColor) continue;
    const int count = s.last - s.first + 1, channel = threadIdx.x / 32;  // a warp each
    float* coefficients = parameters.of(static_cast<int64_t>(chain_index) * plan.shape.depth + j);
    if (channel < 3)
      warp_run(count, stream, chain, j, Purpose::color, channel,
               [&](int i, float z) { coefficients[channel * count + i] = z * s.strength; });
    __syncthreads();
    for (int c = 0; c < 3; ++c) x[c] = color_map(x[c], coefficients + c * count, s.first, count);
  }
  for (int c = 0; c < 3; ++c) tables[chain_index][c][threadIdx.x] = x[c];
}

// Brings a pass's table, if it has one, into shared memory. All threads of the block come here.
__device__ __forceinline__ void load_table(Table& table, const Pass& pass) {
  if (pass.op != kColor) return;
  constexpr int kQuads = sizeof(Table) / sizeof(uint4);
  __syncthreads();  // nobody still reads another chain's table
  for (int i = threadIdx.x; i < kQuads; i += kThreads)
    reinterpret_cast<uint4*>(table)[i] = __ldg(static_cast<const uint4*>(pass.operand) + i);
  __syncthreads();
}

// ------------------------------------------------------------------------------------------------------- evaluation
// The color map of a band of at most 21 frequencies F - 10 .. F + 10, for values of one channel, in place:
//   sum_k b_{F+k} sin((F + k) t) = sin(F t) C(t) + cos(F t) D(t),   t = pi x,
//   C = sum_k (b_{F+k} + b_{F-k}) cos(k t) = E(s) + cos t O(s),
//   D = sum_k (b_{F+k} - b_{F-k}) sin(k t) = sin t (A(s) + cos t B(s)),   s = cos 2t,
// with polynomials E (degree 5), O, A, B (degree 4), whose coefficients make_coefficients() has made.
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

}  // namespace prime
