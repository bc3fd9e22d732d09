// A slot of the plan as it runs, and the random numbers of its parameters. What a primitive makes of them is in its own
// header.
#pragma once
#include "device.cuh"
#include "workspace.cuh"

namespace prime {

constexpr int kInvalid = -1;

// A slot as it runs: what changes nothing is the identity.
static __device__ Slot slot_of(const Work& w, int chain_index, int j) {
  const Row<const int32_t> plan = w.plan(chain_index / w.args.shape.chains);
  const int chain = chain_index % w.args.shape.chains;
  Slot s = plan.slot(chain, j);
  if (!valid(s, w.args.shape.max_cut, w.args.shape.max_band)) s.primitive = kInvalid;
  if (s.primitive > 0 && (s.strength == 0.f || plan.weight(chain + 1) == 0.f)) s.primitive = kIdentity;
  return s;
}

// How many slots of a chain its table stands for: color maps at its start, of bytes. slot(j) is slot_of(w, chain_index,
// j).
template <class SlotAt>
__device__ int tabulated(const Work& w, SlotAt slot) {
  if (w.args.in_type != DType::u8) return 0;
  int slots = 0;
  for (int j = 0; j < w.args.shape.depth; ++j) {
    const int primitive = slot(j).primitive;
    if (primitive == kColor)
      slots = j + 1;
    else if (primitive != kIdentity)
      break;
  }
  return slots;
}

// n normals of a run, by one warp.
template <class Put>
__device__ void warp_run(int n, Stream stream, int chain, int j, Purpose purpose, int channel, Put put) {
  for (int q = threadIdx.x % 32; q < run_blocks(n); q += 32) {
    const auto z = normals(stream.block<uint32_t>(static_cast<uint32_t>(q), chain, j, purpose, channel));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (4 * q + i < n) put(4 * q + i, z.z[i]);
  }
  __syncwarp();
}

}  // namespace prime
