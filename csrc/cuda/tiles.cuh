// The tile of a block of final_kernel: what its threads make, and what a filter finds around it.
#pragma once
#include "passes.cuh"

namespace prime {

// What a thread makes, kRows rows. A thread with nothing to do is below the image.
__device__ __forceinline__ Place tile_place(const Work& w, int thread = threadIdx.x) {
  const int strip = __umulhi(thread, w.per_tile_pair), pair = thread - strip * w.tile_pairs;  // thread / tile_pairs
  const Place o(2 * (blockIdx.x * w.tile_pairs + pair), kRows * (blockIdx.y * w.tile_strips + strip));
  return strip < w.tile_strips && o.x < w.args.width ? o : Place(0, w.args.height);
}

// Fills the tile with what a pass without pointwise slots makes, kBorderRows rows a thread, and zeros outside the
// image. All threads of the block come here.
__device__ __forceinline__ void run_into(Tile& tile, Table& table, const Work& w, const Pass& pass) {
  load_table(table, pass);
  if (pass.op != kColor) __syncthreads();  // nobody still reads the tile of another chain
  const uint2 black{kBlack, kBlackBlue};
  const int pitch = 2 * w.tile_pairs + 4, above = blockIdx.y == 0;  // rows above the image
  const int strip = __umulhi(threadIdx.x, w.per_border_pair);       // thread / (tile_pairs + 2)
  const int column = threadIdx.x - strip * (w.tile_pairs + 2), row = above + kBorderRows * strip;
  const Place o(2 * (blockIdx.x * w.tile_pairs + column - 1), kRows * blockIdx.y * w.tile_strips - 1 + row);
  if (above && threadIdx.x < pitch) tile[threadIdx.x] = black;
  if (row < kRows * w.tile_strips + 2) {
    const int made = o.x >= 0 && o.x < w.args.width ? w.args.height - o.y : 0;  // rows, or more than there are here
    uint2* const first = tile + row * pitch + 2 * column + 1;
    if (made > 0) {
      const Source source{pass.source, w.args.height, w.args.width, w.pitch};
      uint2* to = first;
      const auto put = [&](int, const Two& v) {
        to[0] = encode(v[0]), to[1] = encode(v[1]);
        to += pitch;
      };
      if (pass.op == kColor)
        read<kBorderRows>(source, o, [&](uint2 p, int c) { return table[c][level(p, c)]; }, put);
      else if (pass.op == kSpatial)
        displace<kBorderRows>(source, o, static_cast<const uint2*>(pass.operand), pass.unit, put);
      else
        filter_3x3<kBorderRows>(source, o, static_cast<const float*>(pass.operand), put);
    }
#pragma unroll 1
    for (int r = max(made, 0); r < kBorderRows; ++r) first[r * pitch] = first[r * pitch + 1] = black;
    if (o.x + 1 == w.args.width)
#pragma unroll 1
      for (int r = 0; r < kBorderRows; ++r) first[r * pitch + 1] = black;
  }
  __syncthreads();
}

}  // namespace prime
