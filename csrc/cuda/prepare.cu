// The first stage of a chunk: packs the images, and turns the plan into what the other kernels need.
#include "compile_plan.cuh"
#include "displacement/products.cuh"
#include "pack.cuh"
#include "spectral.cuh"
#include "table.cuh"
#include "workspace.cuh"

namespace prime {
namespace {

// What blocks do: so many of each. `admit` and `chains` come first, for others wait for them; then blocks that pack,
// which wait for memory, take turns with the others, which compute. No task needs another's result, but `chains` that
// of `admit`.
struct Tasks {
  unsigned admit, chains, parameters, tables, sines, pack;  // blocks
  unsigned packed;                                          // blocks that have packed before
  __host__ __device__ unsigned computing() const { return parameters + tables + sines; }
  unsigned blocks() const { return admit + chains + computing() + pack; }
};

struct BeginParams {
  Tasks tasks;
  PlanView plan;
  CompileParams compile;
  int* admitted;          // [1]
  Parameters parameters;  // [chain_count x depth, words]
  Tables tables;
  PackParams pack;
  Sines sines_y, sines_x;
  int first_channel;  // of the image, of those that run together
};

// The parameters of slots, a warp each.
template <int kC>
__device__ void make_parameters(const PlanView& plan, const Parameters& parameters, int first_channel, int first_warp) {
  __shared__ float shared_of_warp[kWarps][kPolynomial];
  const int64_t at = first_warp + threadIdx.x / 32;
  if (at >= static_cast<int64_t>(plan.chain_count()) * plan.shape.depth) return;
  const int chain_index = static_cast<int>(at / plan.shape.depth), j = static_cast<int>(at % plan.shape.depth),
            chain = chain_index % plan.shape.chains;
  const Row<const int32_t> row = plan.row(chain_index / plan.shape.chains);
  const Slot s = row.slot(chain, j);
  if (!valid(s, plan.shape)) return;
  const WarpSlot warp_slot{s, row.key(), chain, j, parameters.of(at), shared_of_warp[threadIdx.x / 32], first_channel,
                           kC};
  visit(s.primitive, [&](auto primitive) {
    using Type = decltype(primitive);
    if constexpr (Type::kTable)  // make_table() has these
      if (j < tabulated(plan, [&](int j) { return slot_of(plan, chain_index, j); })) return;
    if constexpr (Type::kParameters) make_parameters(primitive, plan.shape, warp_slot);
  });
}

// Block: a part of one task, see Tasks.
// Reads the plan and the input.
// Writes admitted; chains, passes, steps, fields, counts, to_do; parameters; tables; packed, bad; sines.
template <int kC>
__global__ void __launch_bounds__(kBegin, 4) begin_kernel(const __grid_constant__ BeginParams p) {
  after_last_kernel();
  const Tasks& tasks = p.tasks;
  unsigned block = blockIdx.x;
  if (block < tasks.admit) return admit_images(p.plan, p.compile.shape, p.compile.pool, p.admitted);
  if ((block -= tasks.admit) < tasks.chains)
    return compile_chains(p.plan, p.compile, block * (kBegin / p.plan.shape.depth));
  block -= tasks.chains;
  const unsigned computing = tasks.computing(), turns = min(computing, tasks.pack);  // while there are both kinds
  const bool packs = block < 2 * turns ? block % 2 == 0 : tasks.pack > computing;
  block = block < 2 * turns ? block / 2 : block - turns;
  if (packs) {
    const unsigned all = block + tasks.packed, image = all / p.pack.blocks;
    return pack<kC>(p.pack, image, all - image * p.pack.blocks);
  }
  if (block < tasks.parameters) return make_parameters<kC>(p.plan, p.parameters, p.first_channel, block * kWarps);
  if ((block -= tasks.parameters) < tasks.tables)
    return make_table<kC>(p.plan, p.parameters, p.tables, p.first_channel, block);
  make_sines(p.compile.shape, p.sines_y, p.sines_x, (block - tasks.tables) * int64_t(kBegin) + threadIdx.x);
}

BeginParams begin_params(const Workspace& w) {
  const int pack_blocks = (w.shape.pairs * ((w.shape.height + kRows - 1) / kRows) + kBegin - 1) / kBegin;
  return {{},
          w.plan,
          {w.first_channel, w.shape, w.split_modes, w.admitted, w.first_round, w.pool, w.packed, w.parameters, w.tables,
           w.passes, w.steps, w.chains},
          w.admitted,
          w.parameters,
          w.tables,
          {w.input, reading_of(w.input, w.args.channels, w.shape.width), w.shape, pack_blocks, w.packed, w.bad},
          w.sines_y,
          w.sines_x,
          w.first_channel};
}

}  // namespace

cudaError_t prepare(const Workspace& w, cudaStream_t stream) {
  const auto blocks = [](int64_t threads) { return static_cast<unsigned>((threads + kBegin - 1) / kBegin); };
  const auto lanes = [](const Sines& sines) { return int64_t(64) * sines.tiles * sines.steps; };
  const int depth = w.plan.shape.depth;
  const unsigned chains = w.plan.chain_count(), at_a_time = kBegin / depth,
                 chain_blocks = (chains + at_a_time - 1) / at_a_time;
  BeginParams p = begin_params(w);
  p.tasks = {0,
             chain_blocks,
             blocks(int64_t(chains) * depth * 32),
             w.plan.bytes ? chains : 0,
             w.first_channel + w.first_image == 0 ? blocks(lanes(w.sines_y) + lanes(w.sines_x)) : 0,  // once a batch
             static_cast<unsigned>(w.plan.images * p.pack.blocks),
             0};
  if (const cudaError_t error = cudaMemsetAsync(w.bad, 0, w.zeroed, stream)) return error;
  // Of two rounds the chains are compiled after admit_images(), and half of the images are packed meanwhile.
  const unsigned pack = p.tasks.pack;
  if (w.rounds == 2) p.tasks.admit = 1, p.tasks.chains = 0, p.tasks.pack = pack / 2;
  return with_channels(w, [&](auto channels) {
    const auto kernel = begin_kernel<channels>;
    const cudaError_t error = launch(kernel, p.tasks.blocks(), kBegin, stream, p);
    if (error || w.rounds == 1) return error;
    p.tasks = {0, chain_blocks, 0, 0, 0, pack - pack / 2, pack / 2};
    return launch(kernel, p.tasks.blocks(), kBegin, stream, p);
  });
}

}  // namespace prime
