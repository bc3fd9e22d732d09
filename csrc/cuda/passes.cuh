// A pass: a filter, a displacement, a table, or nothing, and the pointwise slots after it, on a thread's pixels.
#pragma once
#include "color.cuh"
#include "displacement/warp.cuh"
#include "noise.cuh"
#include "spectral.cuh"
#include "table.cuh"

namespace prime {

// Long and rarely run: a function of its own, on a copy of the patch in memory.
template <int kC>
static __device__ __noinline__ void rare_step(Patch<kC>& p, StepPlace at) {
  for (int r = 0; r < kStrip; ++r, ++at.y)
    for (at.channel = 0; at.channel < kC; ++at.channel)
      visit(at.step.primitive, [&](auto primitive) {
        if constexpr (decltype(primitive)::kPointwise)
          evaluate(primitive, p.v[r][0][at.channel], p.v[r][1][at.channel], at);
      });
}

template <int kC>
__device__ __forceinline__ void pointwise(Patch<kC>& p, const PassInputs& in, Place o, int chain_index, const Step& s) {
  if (s.primitive != kColor || s.count > kPolynomial) {
    Patch<kC> copy = p;
    const int chain = chain_index % in.plan.shape.chains;
    rare_step(copy, {s, in.plan.row(chain_index / in.plan.shape.chains).key(), chain, in.shape.height, 0, o.x, o.y});
    p = copy;
    return;
  }
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    float* x[2 * kStrip];
#pragma unroll
    for (int i = 0; i < 2 * kStrip; ++i) x[i] = &p.v[i / 2][i % 2][c];
    color_polynomial(x, s.parameters + c * kPolynomialWords);
  }
}

// A pass of a chain without its pointwise slots. kAny: filters need not be 3 x 3.
template <bool kAny, int kCount, int kC, class Put>
__device__ __forceinline__ void run_first(const PassInputs& in, Place o, const Pass& pass, const Table<kC>& table,
                                          Put put) {
  const Source<kC> source(pass.source, in.shape);
#define PRIMITIVE(Type, name, ...) \
  if constexpr (!Type::kPointwise) \
    if (pass.op == k##Type) return move_pixels<kAny, kCount>(Type{}, source, o, pass, in.plan.shape.filter, put);
  PRIME_PRIMITIVES(PRIMITIVE)
#undef PRIMITIVE
  if (pass.op == kTabulated) {
    read<kCount>(source, o, [&](auto p, int c) { return table[c][level(p, c)]; }, put);
  } else {
    read<kCount>(source, o, [](auto p, int c) { return nearest(decode<kC>(p, c) - 1.f); }, put);
  }
}

// A pass of a chain, on this thread's pixels.
template <bool kAny, int kC, class Put>
__device__ __forceinline__ void run_pass(const PassInputs& in, Place o, int chain_index, const Pass& pass,
                                         const Table<kC>& table, Put put) {
  if (pass.first == pass.last) return run_first<kAny, kRows>(in, o, pass, table, put);
  const Step* steps = in.steps + chain_index * in.plan.shape.depth;
#pragma unroll 1
  for (int row = 0; row < kRows && row < in.shape.height - o.y; row += kStrip) {
    const Place here{o.x, o.y + row};
    Patch<kC> p;
    run_first<kAny, kStrip>(in, here, pass, table, [&](int r, const Two<kC>& v) {
#pragma unroll
      for (int i = 0; i < 2 * kC; ++i) p.v[r][i / kC][i % kC] = v[i / kC][i % kC];
    });
    for (int j = pass.first; j < pass.last; ++j) pointwise(p, in, here, chain_index, steps[j]);
#pragma unroll
    for (int r = 0; r < kStrip; ++r) put(row + r, p.v[r]);
  }
}

}  // namespace prime
