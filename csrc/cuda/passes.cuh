// A pass: a filter, a displacement, a table, or nothing, and the pointwise slots after it, on a thread's pixels.
#pragma once
#include "color.cuh"
#include "displacement/warp.cuh"
#include "noise.cuh"
#include "spectral.cuh"

namespace prime {

// Long and rarely run: a function of its own, on a copy of the patch in memory.
static __device__ __noinline__ void rare_step(Patch& p, Step s, Stream stream, int chain, int height, int x, int y) {
  for (int r = 0; r < kStrip; ++r)
    for (int c = 0; c < 3; ++c) {
      float &left = p.v[r][0][c], &right = p.v[r][1][c];
      if (s.primitive == kColor) {
        left = wide_color(left, s.parameters + c * s.count, s.first, s.count);
        right = wide_color(right, s.parameters + c * s.count, s.first, s.count);
      } else {
        add_noise(left, right, s, stream, chain, height, c, x, y + r);
      }
    }
}

__device__ __forceinline__ void pointwise(Patch& p, const PassInputs& in, Place o, int chain_index, const Step& s) {
  if (s.primitive != kColor || s.count > kPolynomial) {
    Patch copy = p;
    const int chain = chain_index % in.plan.shape.chains;
    rare_step(copy, s, in.plan.row(chain_index / in.plan.shape.chains).stream(), chain, in.shape.height, o.x, o.y);
    p = copy;
    return;
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    float* x[2 * kStrip];
#pragma unroll
    for (int i = 0; i < 2 * kStrip; ++i) x[i] = &p.v[i / 2][i % 2][c];
    color_polynomial(x, s.parameters + c * kPolynomialWords);
  }
}

// A pass of a chain without its pointwise slots.
template <bool k3x3, int kCount, class Put>
__device__ __forceinline__ void run_first(const PassInputs& in, Place o, const Pass& pass, const Table& table,
                                          Put put) {
  const Source source(pass.source, in.shape);
  if (pass.op == kSpectral) {
    const float* taps = static_cast<const float*>(pass.operand);
    if constexpr (k3x3)
      filter_3x3<kCount>(source, o, taps, put);
    else
      filter_any<kCount>(source, o, taps, in.plan.shape.filter, put);
  } else if (pass.op == kSpatial) {
    displace<kCount>(source, o, static_cast<const uint2*>(pass.operand), pass.quantum, put);
  } else if (pass.op == kColor) {
    read<kCount>(source, o, [&](uint2 p, int c) { return table[c][level(p, c)]; }, put);
  } else {
    read<kCount>(source, o, [](uint2 p, int c) { return nearest(decode(p, c) - 1.f); }, put);
  }
}

// A pass of a chain, on this thread's pixels.
template <bool k3x3, class Put>
__device__ __forceinline__ void run_pass(const PassInputs& in, Place o, int chain_index, const Pass& pass,
                                         const Table& table, Put put) {
  if (pass.first == pass.last) return run_first<k3x3, kRows>(in, o, pass, table, put);
  const Step* steps = in.steps + chain_index * in.plan.shape.depth;
#pragma unroll 1
  for (int row = 0; row < kRows && row < in.shape.height - o.y; row += kStrip) {
    const Place here{o.x, o.y + row};
    Patch p;
    run_first<k3x3, kStrip>(in, here, pass, table, [&](int r, const Two& v) {
#pragma unroll
      for (int i = 0; i < 6; ++i) p.v[r][i / 3][i % 3] = v[i / 3][i % 3];
    });
    for (int j = pass.first; j < pass.last; ++j) pointwise(p, in, here, chain_index, steps[j]);
#pragma unroll
    for (int r = 0; r < kStrip; ++r) put(row + r, p.v[r]);
  }
}

}  // namespace prime
