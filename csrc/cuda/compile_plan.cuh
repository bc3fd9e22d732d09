// Compiles the plan into what runs: chains, their passes and steps, and the list of displacement fields.
#pragma once
#include "displacement/precision.h"
#include "slots.cuh"

namespace prime {

// Of code_bytes() each, for a field's shifts.
static __device__ int planes(const ApplyArgs& a, Slot s) {
  return Precision(a.height, a.width, s).quantum == kWide ? 2 : 1;
}

// The order of fields, and where they are, is no part of the result.
static __device__ int add_field(const Work& round, int chain_index, int j, Slot s) {
  const ApplyArgs& a = round.args;
  const Precision precision(a.height, a.width, s);
  const int ky = parity_pad(modes(s.last, a.height));
  const bool fits = int64_t(16) * round.tiles_x * 2 * ky <= round.half_words;
  char* shift = round.pool + atomicAdd(round.counts + kShifts, planes(a, s)) * round.code_bytes();
  const int at = atomicAdd(round.counts + kFields, 1);
  const Stream stream = round.plan(chain_index / a.shape.chains).stream();
  const int chain = chain_index % a.shape.chains, split = !precision.coarse && fits;
  round.fields[at] = {
      stream, reinterpret_cast<uint2*>(shift), chain, j, s.last, ky, split, precision.quantum, s.strength, {}};
  return at;
}

// Passes of a chain whose slots are slot(j); 0 if one is invalid.
template <class SlotAt>
__device__ int passes_of(const Work& w, SlotAt slot) {
  int j = tabulated(w, slot), passes = j > 0;
  for (; j < w.args.shape.depth; ++j) {
    const int primitive = slot(j).primitive;
    if (primitive == kInvalid) return 0;
    if (primitive == kSpectral || primitive == kSpatial || (primitive != kIdentity && passes == 0)) ++passes;
  }
  return passes;
}

// Of so many passes, the images between them that are kept at a time.
static __device__ int images_between(int passes) { return min(max(passes - 1, 0), 2); }

// For two rounds: how many images the first one takes, by one block.
static __device__ void admit_images(const Work& w) {
  __shared__ int shifts[kBegin], fields[kBegin], between[kBegin];  // by image; shifts: planes()
  __shared__ int64_t sums[kWarps];
  __shared__ int fit;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, chains = w.args.shape.chains;
  if (thread == 0) fit = 0;
  int64_t before = 0;
  for (int first = 0; first < w.images; first += kBegin) {
    shifts[thread] = fields[thread] = between[thread] = 0;
    __syncthreads();
    const int here = min(kBegin, w.images - first);
    for (int i = thread; i < here * w.views * chains; i += kBegin) {  // a thread a chain
      const int image = i % here, view_chain = i / here;
      const int chain_index = (view_chain / chains * w.images + first + image) * chains + view_chain % chains;
      const auto slot = [&](int j) { return slot_of(w, chain_index, j); };
      for (int j = 0; j < w.args.shape.depth; ++j) {
        const Slot s = slot(j);
        if (s.primitive == kSpatial) atomicAdd(shifts + image, planes(w.args, s)), atomicAdd(fields + image, 1);
      }
      atomicAdd(between + image, images_between(passes_of(w, slot)));
    }
    __syncthreads();
    // Bytes of the pool that the images need, up to this one.
    int64_t sum =
        shifts[thread] * w.code_bytes() + max(fields[thread] * w.half_bytes(), between[thread] * w.image_bytes());
    for (int step = 1; step < 32; step *= 2) {
      const int64_t other = __shfl_sync(0xffffffff, sum, lane < step ? lane : lane - step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int64_t all = before;
    for (int i = 0; i < kWarps; ++i) {
      if (i == warp) sum += all;
      all += sums[i];
    }
    if (thread < here && sum <= w.pool_bytes) atomicAdd(&fit, 1);
    before = all;
    __syncthreads();
  }
  if (thread == 0) *w.admitted = fit;
}

// Chains as passes and steps, and the list of displacement fields. First a thread a slot, then a thread a chain.
static __device__ void compile_chains(const Work& w, int first) {
  __shared__ Slot slots[kBegin];
  __shared__ int numbers[kBegin];  // of fields
  const ApplyArgs& a = w.args;
  const int depth = a.shape.depth, here = min(kBegin / depth, w.chain_count() - first);
  const int split = w.in_first_round();
  const auto round_of = [&](int chain_index) { return w.in_round(chain_index / a.shape.chains % w.images >= split); };
  if (threadIdx.x < here * depth) {
    const int chain_index = first + threadIdx.x / depth, j = threadIdx.x % depth;
    const Slot s = slot_of(w, chain_index, j);
    if (s.primitive == kSpatial) numbers[threadIdx.x] = add_field(round_of(chain_index), chain_index, j, s);
    slots[threadIdx.x] = s;
  }
  __syncthreads();
  if (threadIdx.x >= here) return;
  const int chain_index = first + threadIdx.x;
  const Work round = round_of(chain_index);
  const int64_t at = static_cast<int64_t>(chain_index) * depth;
  const float weight = w.plan(chain_index / a.shape.chains).weight(chain_index % a.shape.chains + 1);
  const auto slot = [&](int j) { return slots[threadIdx.x * depth + j]; };
  const int between = images_between(weight == 0.f ? 0 : passes_of(w, slot));
  const int image = between == 0 ? 0 : atomicAdd(round.counts + kImages, between);
  int passes = 0, steps = 0;
  Pass pass{};
  const auto next = [&](int op) {
    const uint2* source = w.packed + chain_index / a.shape.chains % w.images * w.pixels;
    if (passes) {
      source = pass.target = w.image(image + (passes - 1) % 2);
      pass.last = steps, w.passes[at + passes - 1] = pass;
    }
    pass.source = source, pass.op = op, pass.first = steps;
    ++passes;
  };
  int j = tabulated(w, slot);
  if (j > 0) {
    next(kColor);
    pass.operand = w.tables + chain_index;
  }
  for (; j < depth && weight != 0.f; ++j) {
    const Slot s = slot(j);
    if (s.primitive == kIdentity) continue;
    if (s.primitive == kInvalid) {
      passes = -1;
      break;
    }
    if (s.primitive == kSpectral) {
      next(kSpectral);
      pass.operand = w.parameters_of(chain_index, j);
    } else if (s.primitive == kSpatial) {
      next(kSpatial);
      const Field& field = round.fields[numbers[threadIdx.x * depth + j]];
      pass.operand = field.shift, pass.quantum = field.quantum;
    } else {
      if (passes == 0) next(kIdentity);
      w.steps[at + steps++] = {
          w.parameters_of(chain_index, j), s.primitive, j, s.first, s.last - s.first + 1, s.strength, 0};
    }
  }
  for (int p = 0; p + 1 < passes; ++p)
    round.to_do[p * w.chain_count() + atomicAdd(round.counts + kPasses + p, 1)] = chain_index;
  pass.last = steps;
  w.chains[chain_index] = {pass, passes, weight, {}};
}

}  // namespace prime
