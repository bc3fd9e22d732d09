// The workspace of one chunk of images, on the host: sizes, and where things are. Every kernel gets those that it uses.
#pragma once
#include <type_traits>

#include "cuda.h"
#include "input.cuh"
#include "views.cuh"

namespace prime {

struct Workspace {
  ApplyArgs args;       // of the whole batch, but of the channels that run together alone
  int first_channel;    // of these
  int64_t first_image;  // of the chunk
  int rounds;           // see Pool
  PlanView plan;
  ImageShape shape;
  InputImages input;
  int split_modes;       // a field has room for half products of two numbers each if its ky is no larger
  size_t bytes, zeroed;  // of the workspace; of `bad` and what follows, to be set to zero before the chunk
  // In the workspace:
  Sines sines_y, sines_x;
  char* packed;   // [images, height, pitch] pixels, see pixels.cuh
  Chain* chains;  // [chain_count]
  Pass* passes;   // [chain_count, depth]
  Step* steps;    // [chain_count, depth]
  Parameters parameters;
  Tables tables;   // of byte images
  int* admitted;   // how many images the first round takes; null if there is one
  BadPixels* bad;  // of this chunk's float images; final_kernel() adds it to ApplyArgs::bad
  Round first_round;
  Pool pool;

  PassInputs pass_inputs() const { return {shape, plan, steps}; }
};

// Lays out a chunk of `images` images from `first_image` on, of the channels from `first_channel` on that run together,
// in memory at `base`, which may be null: then only the sizes are of use.
Workspace lay_out(const ApplyArgs& args, int first_channel, int64_t first_image, int64_t images, int rounds,
                  void* base);
struct ChunkSize {
  int64_t images;
  int rounds;    // see Pool
  size_t bytes;  // of the workspace
};
// As many images as `bytes` can hold, but at least one, and in chunks of one size; in one round if that fits.
ChunkSize chunk_that_fits(const ApplyArgs& args, size_t bytes);
// Large enough that the kernels of a chunk fill the GPU many times over; small beside a training step.
constexpr size_t kWorkspace = size_t(960) << 20;  // bytes

// Calls f with the number of channels that run together as a type, std::integral_constant.
template <class F>
cudaError_t with_channels(const Workspace& w, F f) {
  switch (w.args.channels) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 3: return f(std::integral_constant<int, 3>());
    default: return f(std::integral_constant<int, 4>());
  }
}

// The stages of a chunk, in this order; all but the first once a round.
[[nodiscard]] cudaError_t prepare(const Workspace& w, cudaStream_t stream);  // packs images, reads the plan
[[nodiscard]] cudaError_t fields(const Workspace& w, int round, int processors, cudaStream_t stream);  // displacement
[[nodiscard]] cudaError_t pass(const Workspace& w, int round, int number, dim3 blocks,
                               cudaStream_t stream);                                             // not last
[[nodiscard]] cudaError_t mix(const Workspace& w, int round, dim3 blocks, cudaStream_t stream);  // last passes, output

}  // namespace prime
