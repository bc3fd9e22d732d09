// Where things are in the workspace, and how many images it can hold.
#include <algorithm>

#include "../core/check.h"
#include "color.cuh"
#include "spectral.cuh"
#include "workspace.cuh"

namespace prime {
namespace {

// Hands out the workspace, piece by piece; with no memory, only counts.
struct Arena {
  char* base;
  size_t used = 0;
  template <class T>
  void take(T*& p, int64_t count) {
    p = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
  }
};

// Words of a slot's parameters, whatever its primitive.
int largest_parameters(const PlanShape& shape, int channels) {
  int most = 0;
  const auto count = [&](auto primitive) {
    if constexpr (decltype(primitive)::kParameters) most = std::max(most, parameter_words(primitive, shape, channels));
  };
#define PRIMITIVE(Type, name, ...) count(Type{});
  PRIME_PRIMITIVES(PRIMITIVE)
#undef PRIMITIVE
  return most;
}

// Slots of the chunk that may be spatial.
int64_t spatial_slots(const PlanView& plan) {
  return plan.shape.max_cut > 0 ? static_cast<int64_t>(plan.chain_count()) * plan.shape.depth : 0;
}

// The channels from `first` on that run together, as images by themselves.
ApplyArgs channels_from(int first, ApplyArgs a) {
  a.in = static_cast<const char*>(a.in) + first * a.in_strides.c * item_size(a.in_type);
  a.out = static_cast<char*>(a.out) + first * a.out_strides.c * item_size(a.out_type);
  a.channels = std::min(a.channels - first, kTogether);
  for (int c = 0; c < a.channels; ++c) a.mean[c] = a.mean[first + c], a.scale[c] = a.scale[first + c];
  return a;
}

// The part of the arguments that a chunk has, and the sizes of what the workspace holds.
Workspace sized(const ApplyArgs& all, int first_channel, int64_t first_image, int64_t images, int rounds) {
  Workspace w;
  const ApplyArgs& a = w.args = channels_from(first_channel, all);
  w.first_channel = first_channel, w.first_image = first_image, w.rounds = rounds;
  const PlanShape& plan = a.shape;
  const int views = static_cast<int>(a.rows / a.images), pitch = (a.width + 3) / 4 * 4, pairs = (a.width + 1) / 2;
  w.plan = {
      a.plan + first_image * row_words(plan), a.images, static_cast<int>(images), views, plan, a.in_type == DType::u8};
  w.shape = {a.height, a.width, pitch, pairs, division_word(pairs), static_cast<int64_t>(pitch) * a.height};
  w.input = {static_cast<const char*>(a.in) + first_image * a.in_strides.n * item_size(a.in_type), a.in_type,
             a.in_strides};
  const int ky = parity_pad(modes(plan.max_cut, a.height)), kx = parity_pad(modes(plan.max_cut, a.width));
  w.sines_y.tiles = ((a.height + 1) / 2 + 15) / 16, w.sines_y.steps = ky / kK;
  w.sines_x.tiles = ((a.width + 1) / 2 + 15) / 16, w.sines_x.steps = kx / kK;
  // Room for all modes once, or for the fewer ones of a split field twice.
  const int64_t words_of_mode = 16 * w.sines_x.tiles;
  w.pool.half_words = words_of_mode * std::max(ky, 2 * std::min(ky, std::max(48, ky / 32 * 16)));
  w.split_modes = static_cast<int>(w.pool.half_words / (2 * words_of_mode));
  w.pool.pixels = w.shape.pixels;
  w.pool.image_bytes = w.shape.pixels * pixel_bytes(a.channels);
  const int64_t spatial = spatial_slots(w.plan), between = int64_t(w.plan.chain_count()) * std::min(plan.depth - 1, 2);
  const int64_t most =
      spatial * 2 * w.pool.code_bytes() + std::max(spatial * w.pool.half_bytes(), between * w.pool.image_bytes);
  w.pool.bytes = (rounds == 1 ? most : (most + most / images) / 2 + 255) / 256 * 256;
  w.tables.channels = a.channels;
  w.parameters.words = largest_parameters(plan, a.channels);
  return w;
}

// Says where everything is that has its size, from `base` on.
void place(Workspace& w, void* base) {
  const int depth = w.plan.shape.depth;
  const int64_t chains = w.plan.chain_count(), slots = chains * depth;
  Arena arena{static_cast<char*>(base)};
  // Sines come first, where all chunks of a batch find them; 128 words are a step's, [2][2][32].
  arena.take(w.sines_y.words, int64_t(128) * w.sines_y.tiles * w.sines_y.steps);
  arena.take(w.sines_x.words, int64_t(128) * w.sines_x.tiles * w.sines_x.steps);
  arena.take(w.packed, w.plan.images * w.pool.image_bytes);
  arena.take(w.passes, slots);
  arena.take(w.steps, slots);
  arena.take(w.chains, chains);
  arena.take(w.parameters.values, slots * w.parameters.words);
  arena.take(w.tables.values, w.plan.bytes ? chains * w.tables.channels * 256 : 0);
  arena.take(w.admitted, 1);
  if (w.rounds == 1) w.admitted = nullptr;
  Round& first = w.first_round;
  arena.take(first.fields, w.rounds * spatial_slots(w.plan));
  const size_t zeroed_from = arena.used;
  arena.take(w.bad, 1);
  arena.take(first.counts, w.rounds * (kPasses + depth - 1));
  w.zeroed = arena.used - zeroed_from;
  arena.take(first.to_do, w.rounds * chains * (depth - 1));
  arena.take(w.pool.start, w.pool.bytes);
  w.bytes = arena.used;
}

}  // namespace

Workspace lay_out(const ApplyArgs& args, int first_channel, int64_t first_image, int64_t images, int rounds,
                  void* base) {
  Workspace w = sized(args, first_channel, first_image, images, rounds);
  place(w, base);
  return w;
}

ChunkSize chunk_that_fits(const ApplyArgs& a, size_t bytes) {
  const auto chunk_of = [&](int64_t images) {
    const auto in_rounds = [&](int rounds) {
      return ChunkSize{images, rounds, lay_out(a, 0, 0, images, rounds, nullptr).bytes};
    };
    const ChunkSize one = in_rounds(1);
    return one.bytes <= bytes ? one : in_rounds(2);
  };
  int64_t low = 1,
          high = std::min<int64_t>(a.images, std::max<int64_t>(65535 / (a.rows / a.images * a.shape.chains), 1));
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (chunk_of(middle).bytes <= bytes)
      low = middle;
    else
      high = middle - 1;
  }
  const int64_t chunks = (a.images + low - 1) / low;
  return chunk_of((a.images + chunks - 1) / chunks);  // all of one size
}

}  // namespace prime
