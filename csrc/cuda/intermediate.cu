// The second stage of a chunk, once a round: displacement fields, and all passes but the last of each chain.
#include <algorithm>

#include "displacement/products.cuh"
#include "passes.cuh"
#include "workspace.cuh"

namespace prime {
namespace {

// Block (b, f): 16 rows of the coefficients of one parity, both directions, of fields f, f + gridDim.y, ...
// Reads fields and the sines of x; the coefficients are drawn.
// Writes half products to the end of the pool.
template <int kRoom, bool kAtOnce>
__global__ void __launch_bounds__(kHalfThreads, kAtOnce ? 6 : 4)
    half_product_kernel(const __grid_constant__ HalfProductParams p) {
  after_last_kernel();
  half_products<kRoom, kAtOnce>(p);
}

// Block (x, f): 16 columns and their mirror images of fields f, f + gridDim.y, ...
// Reads fields, half products and the sines of y.
// Writes shifts, to the start of the pool.
__global__ void __launch_bounds__(kShiftThreads, 4) shift_kernel(const __grid_constant__ ShiftParams p) {
  after_last_kernel();
  shifts(p);
}

struct PassParams {
  PassInputs inputs;
  int number;          // of the pass in its chain
  const Pass* passes;  // [chain_count, depth]
  const int* to_do;    // [count]: chains that have this pass, and it is not their last
  const int* count;    // [1]
};

// Block (b, c): kThreads patches of 2 columns x kRows rows of some chains in a row of to_do: mostly those of one image,
// whose first passes read the same pixels.
// Reads passes, steps, and what they point to: the packed image or that of the pass before, taps, shifts or a table.
// Writes the image of pass `number`, to the end of the pool. Every other pass goes through its chains backwards, for
// what the pass before has written last is still in the L2.
// kAny: filters of any size.
template <int kC, bool kAny>
__global__ void __launch_bounds__(kThreads, 8) pass_kernel(const __grid_constant__ PassParams p) {
  __shared__ __align__(16) Table<kC> table;
  after_last_kernel();
  const ImageShape& shape = p.inputs.shape;
  const int count = *p.count, some = (count + gridDim.y - 1) / gridDim.y, first = blockIdx.y * some;
  for (int i = first; i < min(first + some, count); ++i) {
    const int chain_index = p.to_do[p.number % 2 ? count - 1 - i : i];
    const Pass pass = p.passes[chain_index * p.inputs.plan.shape.depth + p.number];
    load_table(table, pass);
    const Place o(shape, thread_here());
    Pixel<kC>* out = static_cast<Pixel<kC>*>(pass.target) + static_cast<unsigned>(o.y * shape.pitch + o.x);
    run_pass<kAny>(p.inputs, o, chain_index, pass, table, [&](int r, const Two<kC>& v) {
      const Pair<kC> pair = encode<kC>(v);
      if (r < shape.height - o.y) *reinterpret_cast<Pair<kC>*>(out) = pair;
      out += shape.pitch;
    });
  }
}

}  // namespace

cudaError_t fields(const Workspace& w, int round, int processors, cudaStream_t stream) {
  // `across` blocks for a field, and for as many fields at a time as there mostly are, a quarter of all slots; 65,535
  // is CUDA's limit. A second round is mostly empty: few blocks.
  const auto at_a_time = [&](int across, int threads) {
    const int few = processors * 512 / threads / across + 1;
    return static_cast<unsigned>(std::min(w.plan.chain_count() * w.plan.shape.depth / 4 + 1, round == 0 ? 65535 : few));
  };
  const Round here = w.first_round.after(round, w.plan);
  const int *count = here.counts + kFields, tiles_x = w.sines_x.tiles, tiles_y = w.sines_y.tiles;
  const int ky = w.sines_y.steps * kK, kx = w.sines_x.steps * kK;

  const int half_threads = 64 * std::min(kHalfThreads / 64, (tiles_x + 1) / 2);
  const dim3 half_blocks(2 * w.sines_y.steps, at_a_time(2 * w.sines_y.steps, half_threads));
  const int steps = std::max(kx, 2 * std::min(kx, w.split_modes < ky ? w.split_modes : kx)) / kK;
  const auto half_product = steps <= 8    ? half_product_kernel<8, true>
                            : steps <= 16 ? half_product_kernel<16, true>
                                          : half_product_kernel<16, false>;
  const HalfProductParams half{w.shape.height, w.shape.width, here.fields, count, w.sines_x, w.pool};
  if (const cudaError_t error = launch(half_product, half_blocks, half_threads, stream, half)) return error;

  const int shift_threads = 32 * std::min(kShiftThreads / 32, tiles_y);
  const dim3 shift_blocks(tiles_x, at_a_time(tiles_x, shift_threads));
  return launch(
      shift_kernel, shift_blocks, shift_threads, stream,
      ShiftParams{w.shape.height, w.shape.width, w.shape.pitch, here.fields, count, w.sines_y, tiles_x, w.pool});
}

cudaError_t pass(const Workspace& w, int round, int number, dim3 blocks, cudaStream_t stream) {
  const Round here = w.first_round.after(round, w.plan);
  const PassParams params{w.pass_inputs(), number, w.passes, here.to_do + number * w.plan.chain_count(),
                          here.counts + kPasses + number};
  return with_channels(w, [&](auto channels) {
    auto kernel = pass_kernel<channels, true>;
    if constexpr (channels == 3)
      if (w.plan.shape.filter == 3) kernel = pass_kernel<channels, false>;
    return launch(kernel, blocks, kThreads, stream, params);
  });
}

}  // namespace prime
