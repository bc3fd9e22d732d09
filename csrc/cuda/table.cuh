// Tables: what the slots at the start of a chain make of the 256 values of a byte.
#pragma once
#include "color.cuh"
#include "pixels.cuh"
#include "slots.cuh"

namespace prime {

// The table of a chain, by a block.
template <int kC>
static __device__ void make_table(const PlanView& plan, const Parameters& parameters, const Tables& tables,
                                  int first_channel, int chain_index) {
  static_assert(kBegin == 256, "a thread a byte");
  const auto slot = [&](int j) { return slot_of(plan, chain_index, j); };
  const int slots = tabulated(plan, slot), chain = chain_index % plan.shape.chains;
  if (slots == 0) return;
  const Key key = plan.row(chain_index / plan.shape.chains).key();
  float x[kC];
  for (int c = 0; c < kC; ++c) x[c] = byte_value(threadIdx.x);
  for (int j = 0; j < slots; ++j) {
    const Slot s = slot(j);
    float* of_slot = parameters.of(static_cast<int64_t>(chain_index) * plan.shape.depth + j);
    visit(s.primitive, [&](auto primitive) {
      if constexpr (decltype(primitive)::kTable) tabulate(primitive, x, s, key, chain, j, first_channel, of_slot);
    });
  }
  Table<kC>& table = *reinterpret_cast<Table<kC>*>(tables.of(chain_index));
  for (int c = 0; c < kC; ++c) table[c][threadIdx.x] = x[c];
}

// Brings a pass's table, if it has one, into shared memory. All threads of the block come here.
template <int kC>
__device__ __forceinline__ void load_table(Table<kC>& table, const Pass& pass) {
  if (pass.op != kTabulated) return;
  constexpr int kQuads = sizeof(Table<kC>) / sizeof(uint4);
  __syncthreads();  // nobody still reads another chain's table
  for (int i = threadIdx.x; i < kQuads; i += kThreads)
    reinterpret_cast<uint4*>(table)[i] = __ldg(static_cast<const uint4*>(pass.operand) + i);
  __syncthreads();
}

}  // namespace prime
