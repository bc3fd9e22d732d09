// The spectral primitive: random filters. prepare.cu makes the taps; a pass filters.
#pragma once
#include "pixels.cuh"
#include "slots.cuh"

namespace prime {

inline int parameter_words(Spectral, const PlanShape& shape, int) {
  return (shape.filter * shape.filter + 1 + 3) / 4 * 4;
}

// The taps of a filter, by one warp: times 256/255 and followed by their sum, because they meet 1 + (255/256) x.
__device__ __forceinline__ void make_parameters(Spectral, const PlanShape& shape, const WarpSlot& w) {
  const int taps = shape.filter * shape.filter;
  warp_run(taps, w.key, w.chain, w.j, Purpose::filter, 0,
           [&](int i, float z) { w.out[i] = (fmaf(w.slot.strength, z, i == taps / 2 ? 1.f : 0.f)) * kUp; });
  if (threadIdx.x % 32 == 0) {
    float sum = 0.f;
    for (int i = 0; i < taps; ++i) sum += w.out[i];
    w.out[taps] = sum;
  }
}

// Black pixels of three channels, two on either side of a thread's two, and of any other number, at least two.
__device__ const uint4 kBlackRow[2][3] = {
    {{kBlack, kBlackBlue, kBlack, kBlackBlue},
     {kBlack, kBlackBlue, kBlack, kBlackBlue},
     {kBlack, kBlackBlue, kBlack, kBlackBlue}},
    {{kBlack, kBlack, kBlack, kBlack}, {kBlack, kBlack, kBlack, kBlack}, {kBlack, kBlack, kBlack, kBlack}}};

// y = sum of taps x neighbors, zeros around the image. The taps meet 1 + (255/256) x, so their sum is taken off first.
// A row of the source is read once, and adds to the rows above, at and below it.
template <int kCount, int kC, class Put>
__device__ __forceinline__ void filter_3x3(const Source<kC>& s, Place o, const float* taps, Put put) {
  float t[10];  // and their sum
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(taps) + i);
    t[4 * i] = four.x, t[4 * i + 1] = four.y, t[4 * i + 2] = four.z, t[4 * i + 3] = four.w;
  }
  t[8] = __ldg(taps + 8), t[9] = __ldg(taps + 9);
  const bool begins = o.x == 0, ends = o.x + 2 >= s.width;
  const Decoder right(o.x + 1 < s.width);
  const int below = s.height - o.y;  // rows from the first one on
  const Pixel<kC>* row = s.pixels + (static_cast<int64_t>(o.y) - 1) * s.pitch + o.x;
  struct Row {
    Pixel<kC> before = black<kC>(), after = black<kC>();  // stay so where the image ends
    Pair<kC> here;
  };
  const auto load = [&](Row& to, bool inside) {  // the next row
    const Pixel<kC>* from = inside ? row : reinterpret_cast<const Pixel<kC>*>(kBlackRow[kC != 3] + 1);
    if (!begins) to.before = __ldg(from - 1);
    to.here = load_pair<kC>(from);
    if (!ends) to.after = __ldg(from + 2);
    row += s.pitch;
  };
  const auto decoded = [&](float(&column)[kC][4], const Row& from) {
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      column[c][0] = decode<kC>(from.before, c), column[c][1] = decode<kC>(left_of(from.here), c);
      column[c][2] = right(right_of(from.here), c), column[c][3] = decode<kC>(from.after, c);
    }
  };
  // What a row adds to the sums of three: row `y` of the taps.
  const auto add = [&](Two<kC>& sum, const float(&column)[kC][4], int y) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int c = 0; c < kC; ++c) {
        float v = y == 0 ? -t[9] : sum[i][c];
        v = fmaf(t[3 * y], column[c][i], v), v = fmaf(t[3 * y + 1], column[c][i + 1], v);
        sum[i][c] = y == 2 ? clipped_fma(t[8], column[c][i + 2], v) : fmaf(t[3 * y + 2], column[c][i + 2], v);
      }
  };
  Two<kC> sum[2];  // of this row and of the next one
  float column[kC][4];
  Row first, ahead;
  load(first, static_cast<unsigned>(o.y - 1) < static_cast<unsigned>(s.height)), load(ahead, 0 < below);
  decoded(column, first);
  add(sum[0], column, 0);
  decoded(column, ahead);
  load(ahead, 1 < below);
  add(sum[0], column, 1), add(sum[1], column, 0);
#pragma unroll
  for (int r = 0; r < kCount; ++r) {
    if (r > 0 && r >= below) break;
    Two<kC>& here = sum[r % 2];
    Two<kC>& next = sum[(r + 1) % 2];
    decoded(column, ahead);
    if (r + 1 < kCount) load(ahead, r + 2 < below);
    add(here, column, 2);
    put(r, here);
    if (r + 1 < kCount) add(next, column, 1), add(here, column, 0);  // the one after
  }
}

template <int kCount, int kC, class Put>
__device__ __forceinline__ void filter_any(const Source<kC>& s, Place o, const float* taps, int size, Put put) {
  const float sum = __ldg(taps + size * size);
#pragma unroll 1
  for (int r = 0; r < kCount; ++r) {
    Two<kC> v;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float y[kC];
#pragma unroll
      for (int c = 0; c < kC; ++c) y[c] = -sum;
      for (int ky = 0; ky < size; ++ky)
        for (int kx = 0; kx < size; ++kx) {
          const int from_y = o.y + r + ky - size / 2, from_x = o.x + i + kx - size / 2;
          const bool inside = from_y >= 0 && from_y < s.height && from_x >= 0 && from_x < s.width;
          const Raw<kC> raw = decode<kC>(inside ? __ldg(s.at(from_y, from_x)) : black<kC>());
#pragma unroll
          for (int c = 0; c < kC; ++c) y[c] = fmaf(__ldg(taps + ky * size + kx), raw.c[c], y[c]);
        }
#pragma unroll
      for (int c = 0; c < kC; ++c) v[i][c] = __saturatef(y[c]);
    }
    put(r, v);
  }
}

template <bool kAny, int kCount, int kC, class Put>
__device__ __forceinline__ void move_pixels(Spectral, const Source<kC>& s, Place o, const Pass& pass, int size,
                                            Put put) {
  const float* taps = static_cast<const float*>(pass.operand);
  if constexpr (kAny)
    if (size != 3) return filter_any<kCount>(s, o, taps, size, put);
  filter_3x3<kCount>(s, o, taps, put);
}

}  // namespace prime
