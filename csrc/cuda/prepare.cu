// The first stage of a chunk: packs the images, and turns the plan into what the other kernels need.
#include "color.cuh"
#include "compile_plan.cuh"
#include "displacement/products.cuh"
#include "pack.cuh"
#include "spectral.cuh"

namespace prime {
namespace {

// The parameters of slots, a warp each.
__device__ void make_parameters(const Work& w, int first_warp) {
  __shared__ float band_of_warp[kWarps][kPolynomial];
  const ApplyArgs& a = w.args;
  const int64_t at = first_warp + threadIdx.x / 32;
  if (at >= static_cast<int64_t>(w.chain_count()) * a.shape.depth) return;
  const int chain_index = static_cast<int>(at / a.shape.depth), j = static_cast<int>(at % a.shape.depth),
            chain = chain_index % a.shape.chains;
  const Row<const int32_t> plan = w.plan(chain_index / a.shape.chains);
  const Slot s = plan.slot(chain, j);
  if (!valid(s, a.shape.max_cut, a.shape.max_band)) return;
  float* out = w.parameters_of(chain_index, j);
  const int lane = threadIdx.x % 32;
  if (s.primitive == kSpectral) {
    make_taps(a, plan, s, chain, j, lane, out);
  } else if (s.primitive == kColor) {
    if (j < tabulated(w, [&](int j) { return slot_of(w, chain_index, j); })) return;  // make_table() has these
    make_coefficients(plan, s, chain, j, lane, band_of_warp, out);
  }
}

// What blocks do, in this order: so many of each. No task needs another's result, but `chains` that of `admit`.
struct Tasks {
  unsigned admit, chains, parameters, tables, pack, sines;  // blocks
  Reading reading;
  unsigned blocks() const { return admit + chains + parameters + tables + pack + sines; }
};

// Block: a part of one task, see Tasks.
// Reads the plan and the input.
// Writes admitted, chains, passes, steps, fields, counts, to_do; parameter; tables; packed, bad; sine_y, sine_x.
__global__ void __launch_bounds__(kBegin) begin_kernel(Work w, Tasks tasks) {
  after_last_kernel();
  unsigned block = blockIdx.x;
  if (block < tasks.admit) return admit_images(w);
  if ((block -= tasks.admit) < tasks.chains) return compile_chains(w, block * (kBegin / w.args.shape.depth));
  if ((block -= tasks.chains) < tasks.parameters) return make_parameters(w, block * kWarps);
  if ((block -= tasks.parameters) < tasks.tables) return make_table(w, block);
  if ((block -= tasks.tables) < tasks.pack) {
    const unsigned each = pack_blocks(w), image = block / each;
    return pack(w, image, block - image * each, tasks.reading);
  }
  make_sines(w, (block - tasks.pack) * int64_t(kBegin) + threadIdx.x);
}

}  // namespace

cudaError_t prepare(const Work& w, bool first, cudaStream_t stream) {
  const auto blocks = [](int64_t threads) { return static_cast<unsigned>((threads + kBegin - 1) / kBegin); };
  const int64_t sines = int64_t(2) * 32 / kK * (int64_t(w.tiles_y) * w.ky + int64_t(w.tiles_x) * w.kx);
  const unsigned chains = kBegin / w.args.shape.depth;  // of a block
  const unsigned chain_blocks = (w.chain_count() + chains - 1) / chains;
  Tasks tasks{0,
              chain_blocks,
              blocks(int64_t(w.chain_count()) * w.args.shape.depth * 32),
              w.args.in_type == DType::u8 ? static_cast<unsigned>(w.chain_count()) : 0,
              static_cast<unsigned>(w.images * pack_blocks(w)),
              first ? blocks(sines) : 0,
              reading_of(w.args)};
  const char* zeros = reinterpret_cast<const char*>(w.counts + w.rounds * w.counters());
  const size_t bytes = zeros - reinterpret_cast<const char*>(w.bad);
  if (const cudaError_t error = cudaMemsetAsync(w.bad, 0, bytes, stream)) return error;
  if (w.rounds == 2) tasks.admit = 1, tasks.chains = 0;
  const cudaError_t error = launch(begin_kernel, tasks.blocks(), kBegin, stream, w, tasks);
  if (error || w.rounds == 1) return error;
  return launch(begin_kernel, chain_blocks, kBegin, stream, w, Tasks{0, chain_blocks});  // after admit_images()
}

}  // namespace prime
