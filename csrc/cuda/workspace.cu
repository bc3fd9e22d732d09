// Where things are in the workspace, and how many images it can hold.
#include <algorithm>

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

}  // namespace

size_t lay_out(Work& w, const ApplyArgs& a, int64_t images, int rounds, void* base) {
  w.args = a, w.rounds = rounds, w.round = 0;
  w.views = static_cast<int>(a.rows / a.images), w.images = static_cast<int>(images);
  const auto per = [](int count) { return static_cast<uint32_t>(((uint64_t(1) << 32) + count - 1) / count); };
  w.pairs = (a.width + 1) / 2, w.per_pair = per(w.pairs);
  w.pitch = (a.width + 3) / 4 * 4, w.per_quad = per(w.pitch / 4), w.pixels = static_cast<int64_t>(w.pitch) * a.height;
  w.ky = parity_pad(modes(a.shape.max_cut, a.height)), w.kx = parity_pad(modes(a.shape.max_cut, a.width));
  w.tiles_y = ((a.height + 1) / 2 + 15) / 16, w.tiles_x = ((a.width + 1) / 2 + 15) / 16;
  // Room for all modes once, or for the fewer ones of a split field twice.
  w.half_words = int64_t(16) * w.tiles_x * std::max(w.ky, 2 * std::min(w.ky, std::max(48, w.ky / 32 * 16)));
  w.parameters = std::max((a.shape.filter * a.shape.filter + 1 + 3) / 4 * 4,
                          3 * (a.shape.max_band > kPolynomial ? (a.shape.max_band + 3) / 4 * 4 : kPolynomialWords));
  const int64_t chains = images * w.views * a.shape.chains, slots = chains * a.shape.depth,
                spatial = a.shape.max_cut > 0 ? slots : 0;
  Arena arena{static_cast<char*>(base)};
  arena.take(w.sine_y, int64_t(4) * w.tiles_y * (w.ky / kK) * 32);
  arena.take(w.sine_x, int64_t(4) * w.tiles_x * (w.kx / kK) * 32);
  arena.take(w.packed, images * w.pixels);
  arena.take(w.passes, slots);
  arena.take(w.steps, slots);
  arena.take(w.chains, chains);
  arena.take(w.parameter, slots * w.parameters);
  arena.take(w.tables, a.in_type == DType::u8 ? chains : 0);
  arena.take(w.admitted, 1);
  arena.take(w.fields, rounds * spatial);
  arena.take(w.bad, 1);  // begin() sets this and what follows to zero
  arena.take(w.counts, rounds * w.counters());
  arena.take(w.to_do, rounds * chains * (a.shape.depth - 1));
  const int64_t between = chains * std::min(a.shape.depth - 1, 2);
  const int64_t most = spatial * 2 * w.code_bytes() + std::max(spatial * w.half_bytes(), between * w.image_bytes());
  w.pool_bytes = (rounds == 1 ? most : (most + most / images) / 2 + 255) / 256 * 256;
  arena.take(w.pool, w.pool_bytes);
  return arena.used;
}

Chunk chunk_that_fits(const ApplyArgs& a, size_t bytes) {
  const auto chunk_of = [&](int64_t images) {
    Work w;
    const size_t one_round = lay_out(w, a, images, 1, nullptr);
    return one_round <= bytes ? Chunk{images, 1, one_round} : Chunk{images, 2, lay_out(w, a, images, 2, nullptr)};
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
