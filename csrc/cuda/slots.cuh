// A slot of the plan as it runs, and the random numbers of its parameters. What a primitive makes of them is in its own
// header.
#pragma once
#include "device.cuh"
#include "views.cuh"

namespace prime {

constexpr int kInvalid = -1;

// A slot as it runs: what changes nothing is the identity.
static __device__ Slot slot_of(const PlanView& plan, int chain_index, int j) {
  const Row<const int32_t> row = plan.row(chain_index / plan.shape.chains);
  const int chain = chain_index % plan.shape.chains;
  Slot s = row.slot(chain, j);
  if (!valid(s, plan.shape)) s.primitive = kInvalid;
  if (s.primitive > 0 && (s.strength == 0.f || row.weight(chain + 1) == 0.f)) s.primitive = kIdentity;
  return s;
}

static __device__ bool is_pointwise(int primitive) {
  return visit(primitive, [](auto type) { return decltype(type)::kPointwise; });
}
static __device__ bool may_be_tabulated(int primitive) {
  return visit(primitive, [](auto type) { return decltype(type)::kTable; });
}

// How many slots of a chain its table stands for: those at its start that may be part of one, of bytes. slot(j) is
// slot_of(plan, chain_index, j).
template <class SlotAt>
__device__ int tabulated(const PlanView& plan, SlotAt slot) {
  if (!plan.bytes) return 0;
  int slots = 0;
  for (int j = 0; j < plan.shape.depth; ++j) {
    const int primitive = slot(j).primitive;
    if (primitive == kIdentity) continue;
    if (!may_be_tabulated(primitive)) break;
    slots = j + 1;
  }
  return slots;
}

// A slot whose parameters one warp makes.
struct WarpSlot {
  Slot slot;
  Key key;
  int chain, j;       // where in the row the slot is
  float* out;         // [Parameters::words]
  float* shared;      // [kPolynomial] (color.cuh) in shared memory, of this warp
  int first_channel;  // of the image, of those that run together,
  int channels;       // so many
};

// n normals of a run, by one warp.
template <class Put>
__device__ void warp_run(int n, Key key, int chain, int j, Purpose purpose, int channel, Put put) {
  for (int q = threadIdx.x % 32; q < run_blocks(n); q += 32) {
    const auto z = normals(key.block<uint32_t>(static_cast<uint32_t>(q), chain, j, purpose, channel));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (4 * q + i < n) put(4 * q + i, z.z[i]);
  }
  __syncwarp();
}

}  // namespace prime
