// Planar waves, added to the sums of the mix.
#pragma once
#include "output.cuh"

namespace prime {

// Adds the waves of a view of an image, a row of the plan, to this thread's sums, and clips them. Called by all threads
// of the block. Inline: a call would cost what has no waves registers.
template <int kC>
__device__ __forceinline__ void add_waves(Mix<kC>& mix, const PassInputs& in, int row, int first_channel) {
  __shared__ Wave waves[kC];
  const Row<const int32_t> drawn = in.plan.row(row);
  const float strength = drawn.wave_strength();
  if (strength == 0.f) return;
  const int thread = threadIdx.x, height = in.shape.height, width = in.shape.width;
  __syncthreads();  // all are done with the waves of the view before
  if (thread < kC)
    waves[thread] = draw_wave(drawn.key(), first_channel + thread, valid_strength(strength) ? strength : not_a_number(),
                              height, width);
  __syncthreads();
  const Place o(in.shape, thread);
  const float left = from_center(o.x, width), right = from_center(o.x + 1, width);
#pragma unroll 1
  for (int r = 0; r < kRows; ++r) {
    const float y = from_center(o.y + r, height);
    Two<kC> v;
    mix.get(v, r, thread);
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const float phase = wave_phase(waves[c], y);
      v[0][c] = with_wave(v[0][c], waves[c], phase, left), v[1][c] = with_wave(v[1][c], waves[c], phase, right);
    }
    mix.set(r, thread, v);
  }
}

}  // namespace prime
