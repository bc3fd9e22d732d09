// Compiles the plan into what runs: chains, their passes and steps, and the list of displacement fields.
#pragma once
#include "displacement/precision.h"
#include "slots.cuh"

namespace prime {

// How many times Pool::code_bytes() the shifts of a field take: floats take two.
static __device__ int planes(const ImageShape& shape, Slot s) {
  return Precision(shape.height, shape.width, s).quantization_step == kWide ? 2 : 1;
}

struct CompileParams {
  int first_channel;  // of the image, of those that run together
  ImageShape shape;
  int split_modes;      // fields of at most so many modes, ky, have room for residuals
  const int* admitted;  // images of the first round; null if there is one
  Round first_round;
  Pool pool;
  const char* packed;  // [images, Pool::image_bytes]
  Parameters parameters;
  Tables tables;
  Pass* passes;   // [chain_count, depth]
  Step* steps;    // [chain_count, depth]
  Chain* chains;  // [chain_count]
};

// Adds a spatial slot to the round's fields, and gives its number there. The order of fields, and where they are, is no
// part of the result.
static __device__ int add_field(const PlanView& plan, const CompileParams& p, const Round& round, int chain_index,
                                int j, Slot s) {
  const Precision precision(p.shape.height, p.shape.width, s);
  const int ky = parity_pad(modes(s.last, p.shape.height));
  uint2* shift = p.pool.shifts(atomicAdd(round.counts + kShifts, planes(p.shape, s)));
  const int at = atomicAdd(round.counts + kFields, 1);
  const FieldPlace place =
      field_place(s, plan.row(chain_index / plan.shape.chains).key(), chain_index % plan.shape.chains, j);
  const int split = !precision.coarse && ky <= p.split_modes;
  round.fields[at] = {place.key,  shift, place.chain, place.slot, s.last, ky, split, precision.quantization_step,
                      s.strength, {}};
  return at;
}

// Passes of a chain whose slots are slot(j); 0 if one is invalid.
template <class SlotAt>
__device__ int passes_of(const PlanView& plan, SlotAt slot) {
  int j = tabulated(plan, slot), passes = j > 0;
  for (; j < plan.shape.depth; ++j) {
    const int primitive = slot(j).primitive;
    if (primitive == kInvalid) return 0;
    if (primitive != kIdentity && (passes == 0 || !is_pointwise(primitive))) ++passes;
  }
  return passes;
}

// How many images between so many passes are kept at a time.
static __device__ int images_between(int passes) { return min(max(passes - 1, 0), 2); }

// For two rounds: how many images the first one takes, by one block.
static __device__ void admit_images(const PlanView& plan, const ImageShape& shape, const Pool& pool, int* admitted) {
  __shared__ int shifts[kBegin], fields[kBegin], between[kBegin];  // by image; shifts: planes()
  __shared__ int64_t sums[kWarps];
  __shared__ int fit;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, chains = plan.shape.chains;
  if (thread == 0) fit = 0;
  int64_t before = 0;
  for (int first = 0; first < plan.images; first += kBegin) {
    shifts[thread] = fields[thread] = between[thread] = 0;
    __syncthreads();
    const int here = min(kBegin, plan.images - first);
    for (int i = thread; i < here * plan.views * chains; i += kBegin) {  // a thread a chain
      const int image = i % here, view_chain = i / here;
      const int chain_index = (view_chain / chains * plan.images + first + image) * chains + view_chain % chains;
      const auto slot = [&](int j) { return slot_of(plan, chain_index, j); };
      for (int j = 0; j < plan.shape.depth; ++j) {
        const Slot s = slot(j);
        if (s.primitive == kSpatial) atomicAdd(shifts + image, planes(shape, s)), atomicAdd(fields + image, 1);
      }
      atomicAdd(between + image, images_between(passes_of(plan, slot)));
    }
    __syncthreads();
    // Bytes of the pool that the images need, up to this one.
    int64_t sum = shifts[thread] * pool.code_bytes() +
                  max(fields[thread] * pool.half_bytes(), between[thread] * pool.image_bytes);
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
    if (thread < here && sum <= pool.bytes) atomicAdd(&fit, 1);
    before = all;
    __syncthreads();
  }
  if (thread == 0) *admitted = fit;
}

// Chains as passes and steps, and the list of displacement fields. First a thread a slot, then a thread a chain.
static __device__ void compile_chains(const PlanView& plan, const CompileParams& p, int first) {
  __shared__ Slot slots[kBegin];
  __shared__ int numbers[kBegin];  // of fields
  const int depth = plan.shape.depth, here = min(kBegin / depth, plan.chain_count() - first);
  const int split = in_first_round(p.admitted, plan.images);
  const auto round_of = [&](int chain_index) {
    return p.first_round.after(chain_index / plan.shape.chains % plan.images >= split, plan);
  };
  if (threadIdx.x < here * depth) {
    const int chain_index = first + threadIdx.x / depth, j = threadIdx.x % depth;
    const Slot s = slot_of(plan, chain_index, j);
    if (s.primitive == kSpatial) numbers[threadIdx.x] = add_field(plan, p, round_of(chain_index), chain_index, j, s);
    slots[threadIdx.x] = s;
  }
  __syncthreads();
  if (threadIdx.x >= here) return;
  const int chain_index = first + threadIdx.x;
  const Round round = round_of(chain_index);
  const int row = chain_index / plan.shape.chains;
  const char* packed = p.packed + row % plan.images * p.pool.image_bytes;
  const int64_t at = static_cast<int64_t>(chain_index) * depth;
  const float weight = plan.row(row).weight(chain_index % plan.shape.chains + 1);
  const auto slot = [&](int j) { return slots[threadIdx.x * depth + j]; };
  const int between = images_between(weight == 0.f ? 0 : passes_of(plan, slot));
  const int image = between == 0 ? 0 : atomicAdd(round.counts + kImages, between);
  int passes = 0, steps = 0;
  Pass pass{};
  const auto next = [&](int op) {
    const void* source = packed;
    if (passes) {
      source = pass.target = p.pool.image(image + (passes - 1) % 2);
      pass.last = steps, p.passes[at + passes - 1] = pass;
    }
    pass.source = source, pass.op = op, pass.first = steps;
    ++passes;
  };
  int j = tabulated(plan, slot);
  if (j > 0) {
    next(kTabulated);
    pass.operand = p.tables.of(chain_index);
  }
  for (; j < depth && weight != 0.f; ++j) {
    const Slot s = slot(j);
    if (s.primitive == kIdentity) continue;
    if (s.primitive == kInvalid) {
      passes = -1;
      break;
    }
    if (s.primitive == kSpatial) {
      next(kSpatial);
      const Field& field = round.fields[numbers[threadIdx.x * depth + j]];
      pass.operand = field.shift, pass.quantization_step = field.quantization_step;
    } else if (!is_pointwise(s.primitive)) {
      next(s.primitive);
      pass.operand = p.parameters.of(at + j);
    } else {
      if (passes == 0) next(kIdentity);
      p.steps[at + steps++] = {p.parameters.of(at + j), s.primitive, j, s.first, s.last - s.first + 1, s.strength,
                               p.first_channel};
    }
  }
  for (int number = 0; number + 1 < passes; ++number)
    round.to_do[number * plan.chain_count() + atomicAdd(round.counts + kPasses + number, 1)] = chain_index;
  pass.last = steps;
  p.chains[chain_index] = {pass, passes, weight, {}};
}

}  // namespace prime
