// Tables: what the slots at the start of a chain make of the 256 values of a byte.
#pragma once
#include "color.cuh"
#include "pixels.cuh"
#include "slots.cuh"

namespace prime {

// The table of a chain, by a block.
static __device__ void make_table(const PlanView& plan, const Parameters& parameters, Table* tables, int first_channel,
                                  int chain_index) {
  static_assert(kBegin == 256, "a thread a byte");
  const auto slot = [&](int j) { return slot_of(plan, chain_index, j); };
  const int slots = tabulated(plan, slot), chain = chain_index % plan.shape.chains;
  if (slots == 0) return;
  const Key key = plan.row(chain_index / plan.shape.chains).key();
  float x[3];
  for (int c = 0; c < 3; ++c) x[c] = byte_value(threadIdx.x);
  for (int j = 0; j < slots; ++j) {
    const Slot s = slot(j);
    float* of_slot = parameters.of(static_cast<int64_t>(chain_index) * plan.shape.depth + j);
    visit(s.primitive, [&](auto primitive) {
      if constexpr (decltype(primitive)::kTable) tabulate(primitive, x, s, key, chain, j, first_channel, of_slot);
    });
  }
  for (int c = 0; c < 3; ++c) tables[chain_index][c][threadIdx.x] = x[c];
}

// Brings a pass's table, if it has one, into shared memory. All threads of the block come here.
__device__ __forceinline__ void load_table(Table& table, const Pass& pass) {
  if (pass.op != kTabulated) return;
  constexpr int kQuads = sizeof(Table) / sizeof(uint4);
  __syncthreads();  // nobody still reads another chain's table
  for (int i = threadIdx.x; i < kQuads; i += kThreads)
    reinterpret_cast<uint4*>(table)[i] = __ldg(static_cast<const uint4*>(pass.operand) + i);
  __syncthreads();
}

}  // namespace prime
