// The second stage of a chunk, once a round: displacement fields, and all passes but the last of each chain.
#include <algorithm>

#include "displacement/products.cuh"
#include "passes.cuh"

namespace prime {
namespace {

// Block (b, f): 16 rows of the coefficients of one parity, both directions, of fields f, f + gridDim.y, ...
// Reads fields, sine_x; the coefficients are drawn.
// Writes half products to the end of the pool.
template <int kRoom, bool kAtOnce>
__global__ void __launch_bounds__(kHalfThreads, kAtOnce ? 6 : 4) half_product_kernel(Work w) {
  after_last_kernel();
  half_products<kRoom, kAtOnce>(w);
}

// Block (x, f, part): 16 columns and their mirror images, 16 rows a warp and theirs, of fields f, f + gridDim.y, ...
// Reads fields, sine_y, half products.
// Writes shifts, to the start of the pool.
__global__ void __launch_bounds__(kShiftThreads, 2) shift_kernel(Work w) {
  after_last_kernel();
  shifts(w);
}

// Block (b, c): kThreads patches of 2 columns x kRows rows of chains c, c + gridDim.y, ... of to_do[number].
// Reads passes, steps, and what they point to: the packed image or that of the pass before, taps, shifts or a table.
// Writes the image of pass `number`, to the end of the pool. Every other pass goes through its chains backwards, for
// what the pass before has written last is still in the L2.
template <bool k3x3>
__global__ void __launch_bounds__(kThreads, 8) pass_kernel(Work w, int number) {
  __shared__ __align__(16) Table table;
  after_last_kernel();
  const int count = w.counts[kPasses + number], *to_do = w.to_do + number * w.chain_count();
  for (int i = blockIdx.y; i < count; i += gridDim.y) {
    const int chain_index = to_do[number % 2 ? count - 1 - i : i];
    const Pass pass = w.passes[chain_index * w.args.shape.depth + number];
    load_table(table, pass);
    const Place o(w, thread_here());
    uint2* out = pass.target + static_cast<unsigned>(o.y * w.pitch + o.x);
    run_pass<k3x3>(w, o, chain_index, pass, table, [&](int r, const Two& v) {
      const uint2 left = encode(v[0]), right = encode(v[1]);
      if (r < w.args.height - o.y) *reinterpret_cast<uint4*>(out) = {left.x, left.y, right.x, right.y};
      out += w.pitch;
    });
  }
}

}  // namespace

cudaError_t fields(const Work& w, cudaStream_t stream) {
  // `across` blocks for a field, and for as many fields at a time as there mostly are, a quarter of all slots; 65,535
  // is CUDA's limit. A second round is mostly empty: few blocks.
  const auto at_a_time = [&](int across, int threads) {
    const int few = w.processors * 512 / threads / across + 1, most = w.chain_count() * w.args.shape.depth / 4 + 1;
    return static_cast<unsigned>(std::min(most, w.round == 0 ? 65535 : few));
  };
  const int half_threads = 64 * std::min(kHalfThreads / 64, (w.tiles_x + 1) / 2);
  const int split =
      static_cast<int>(w.half_words / (32 * w.tiles_x));  // no split field has more modes; see add_field()
  const int steps = std::max(w.kx, 2 * std::min(w.kx, split < w.ky ? split : w.kx)) / kK;
  const dim3 half_blocks(2 * w.ky / kK, at_a_time(2 * w.ky / kK, half_threads));
  const auto half_product = steps <= 8    ? half_product_kernel<8, true>
                            : steps <= 16 ? half_product_kernel<16, true>
                                          : half_product_kernel<16, false>;
  if (const cudaError_t error = launch(half_product, half_blocks, half_threads, stream, w)) return error;
  const int parts = (w.tiles_y * 32 + kShiftThreads - 1) / kShiftThreads;  // of a column of tiles
  const int shift_threads = 32 * ((w.tiles_y + parts - 1) / parts);
  const dim3 shift_blocks(w.tiles_x, at_a_time(w.tiles_x * parts, shift_threads), parts);
  return launch(shift_kernel, shift_blocks, shift_threads, stream, w);
}

cudaError_t pass(const Work& w, int number, dim3 blocks, cudaStream_t stream) {
  return launch(w.args.shape.filter == 3 ? pass_kernel<true> : pass_kernel<false>, blocks, kThreads, stream, w, number);
}

}  // namespace prime
