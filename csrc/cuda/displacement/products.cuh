// Displacement fields, D = S_y B S_x^T for every spatial slot of a chunk, by two products on tensor cores with
// half-precision factors and single-precision sums:
//   half products   G[x, a] = sum over b of S_x[x, b] B[a, b],   whose coefficients B are drawn on the spot,
//   shifts          D[y, x] = sum over a of S_y[y, a] G[x, a],
// each for the rows of one half of the axis: with O and E the sums over odd and even modes, rows k and N - k are O + E
// and O - E. Where shifts are large, half precision would be too coarse: then B, the sines and G are each the sum of
// two half-precision numbers (Field::split), and the products of all but the two residuals are added.
//
// All factors are kept as the tensor cores want them, so that nothing is rearranged on the way. In mma's m16n8k16 with
// lane 4 g + t, a lane holds rows g and g + 8 of the first factor and of the sum, and column g of the second; of the
// depth (first, second) or the columns (sum) 2 t, 2 t + 1, and in the factors 2 t + 8, 2 t + 9. The sum of the first
// product therefore is the second factor of the second one, lane by lane.
#pragma once
#include "coefficients.cuh"
#include "encoding.cuh"

namespace prime {

constexpr int kHalfThreads = 128, kShiftThreads = 128;  // of a block, at most
constexpr int kShiftRoom = 8;  // steps of half products that a block of the second product has in shared memory

// Sines as the first factor of the tensor-core products, [tiles][k / 16][parity][value, residual][lane].
// Columns x of the image are in such an order that a lane gets 4 t .. 4 t + 3 of the second product: 4 t + 2 i + e is
// row 8 i + 2 t + e here.
static __device__ void make_sines(const ImageShape& shape, const Sines& sines_y, const Sines& sines_x, int64_t at) {
  for (int axis = 0; axis < 2; ++axis) {
    const Sines& sines = axis ? sines_x : sines_y;
    const int tiles = sines.tiles, steps = sines.steps;
    const int64_t lanes = static_cast<int64_t>(2) * tiles * steps * 32;
    if (at >= lanes) {
      at -= lanes;
      continue;
    }
    const int lane = at % 32, parity = at / 32 % 2, step = at / 64 % steps, tile = at / 64 / steps;
    const int intervals = (axis ? shape.width : shape.height) - 1;
    union {
      __half h[8];
      uint4 all;
    } value, residual;
    for (int i = 0; i < 8; ++i) {
      const int g = lane / 4, second = i / 2 % 2;
      const int row = tile * 16 + (axis ? g / 2 * 4 + second * 2 + g % 2 : second * 8 + g);
      const int k = step * kK + lane % 4 * 2 + i % 2 + i / 4 * 8;
      const float sine = grid_sine(2 * k + 1 + parity, row, intervals);
      value.h[i] = __float2half_rn(sine);
      residual.h[i] = __float2half_rn(sine - __half2float(value.h[i]));
    }
    uint4* out = sines.words + at / 32 * 64 + lane;
    out[0] = value.all, out[32] = residual.all;
    return;
  }
}

// The sums over odd and even modes for 16 columns x and twice eight rows a of both fields,
// [direction][eight][parity][4].
template <bool kSplit>
__device__ __forceinline__ void multiply_draws(float (&sum)[2][2][2][4], const uint4* sines, const uint4* draws,
                                               int residual_of_draws, int steps) {
#pragma unroll 1
  do {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint4 sine = __ldg(sines + parity * 64);
      uint4 residual_of_sine;
      if constexpr (kSplit) residual_of_sine = __ldg(sines + parity * 64 + 32);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const auto add = [&](uint4 sine, uint4 b) {
          multiply_add(sum[0][eight][parity], sine, b.x, b.y);
          multiply_add(sum[1][eight][parity], sine, b.z, b.w);
        };
        const uint4* draws_at = draws + (eight * 2 + parity) * 32;
        const uint4 b = *draws_at;
        add(sine, b);
        if constexpr (kSplit) add(residual_of_sine, b), add(sine, draws_at[residual_of_draws]);
      }
    }
    sines += 128, draws += 128;
  } while (--steps > 0);
}

struct HalfProductParams {
  int height, width;
  const Field* fields;  // [count]
  const int* count;     // [1]
  Sines sines;          // of x
  Pool pool;
};

// A block takes 16 rows a of B of one parity, one step of the second product, for both fields: its warps, an even
// number, draw them, each some steps of modes for eight of the rows, and multiply them with the sines, each some tiles
// of 16 columns x. kRoom: steps that fit into shared memory; unless all do (kAtOnce), they are drawn again for every
// round of tiles.
template <int kRoom, bool kAtOnce>
__device__ __forceinline__ void half_products(const HalfProductParams& p) {
  __shared__ uint4 shared[kRoom][2][2][32];  // [step, and residuals of steps][eight][parity][lane]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, eight = warp % 2;
  const int count = *p.count, tiles = p.sines.tiles;
  for (int number = blockIdx.y; number < count; number += gridDim.y) {
    const Field f = p.fields[number];
    const int sixteens = f.ky / kK, sixteen = blockIdx.x / 2, parity = blockIdx.x % 2;
    if (sixteen >= sixteens) continue;
    const auto modes_of = [&](int a) { return a <= modes(f.cut, p.height) ? row_modes(a, f.cut, p.width) : 0; };
    const int first = sixteen * 2 * kK + 1 + parity, a = first + eight * kK + lane / 4 * 2;
    const int n = modes_of(a), steps = max((modes_of(first) + 2 * kK - 1) / (2 * kK), 1);
    const int drawn = __shfl_sync(0xffffffff, n, 0);  // of this warp's rows the most
    const int room = f.split ? kRoom / 2 : kRoom;
    const FoldedStd folded_std(a, f.cut, p.height, p.width);
    const auto draw_some = [&](int from, int here) {
      __syncthreads();  // the last ones have been used
      for (int step = warp / 2; step < here; step += warps / 2) {
        const auto put = [&](int parity, bool residual, uint4 words) {
          shared[residual * room + step][eight][parity][lane] = words;
        };
        if ((from + step) * 2 * kK < drawn) {
          draw(from + step, a, n, f, folded_std, put);
        } else {
          put(0, false, {}), put(1, false, {});
          if (f.split) put(0, true, {}), put(1, true, {});
        }
      }
      __syncthreads();
    };
    if constexpr (kAtOnce) draw_some(0, steps);
    for (int tile = warp; (kAtOnce ? tile : tile - warp) < tiles; tile += warps) {
      const bool mine = kAtOnce || tile < tiles;  // or this warp only draws
      float sum[2][2][2][4] = {};                 // [direction][eight][parity]
      const auto multiply_some = [&](int from, int here) {
        if (!mine) return;
        const uint4* sines = p.sines.words + (tile * p.sines.steps + from) * 128 + lane;
        if (f.split)
          multiply_draws<true>(sum, sines, &shared[0][0][0][lane], room * 128, here);
        else
          multiply_draws<false>(sum, sines, &shared[0][0][0][lane], room * 128, here);
      };
      if constexpr (kAtOnce) {
        multiply_some(0, steps);
      } else {
        for (int from = 0; from < steps; from += room) {
          const int here = min(room, steps - from);
          if (tile == warp || steps > room) draw_some(from, here);
          multiply_some(from, here);
        }
      }
      if (!mine) continue;
      uint4* out = p.pool.half_products(number) + (tile * 2 * sixteens + blockIdx.x) * 128 + lane;
#pragma unroll
      for (int direction = 0; direction < 2; ++direction) {
        float near[2][4], far[2][4];  // [eight], of columns x, and W - 1 - x
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float o = sum[direction][i / 4][0][i % 4], e = sum[direction][i / 4][1][i % 4];
          near[i / 4][i % 4] = o + e, far[i / 4][i % 4] = o - e;
        }
        const auto write = [&](uint4* to, auto two) {
          const auto all = [&](const float(&v)[2][4]) {
            return uint4{two(v[0][0], v[0][1]), two(v[1][0], v[1][1]), two(v[0][2], v[0][3]), two(v[1][2], v[1][3])};
          };
          to[0] = all(near), to[32] = all(far);
        };
        write(out + direction * 64, halves);
        if (f.split) write(out + tiles * 2 * sixteens * 128 + direction * 64, residuals);
      }
    }
  }
}

// Adds the sums over odd and even modes for 16 rows y and four times eight columns of both fields,
// [direction][parity][eight][4]. half: of this lane, in shared memory.
__device__ __forceinline__ void multiply(float (&sum)[2][2][4][4], const uint4* sines, const uint4* half, int steps) {
#pragma unroll 1
  do {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint4 sine = __ldg(sines + parity * 64);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // down near and far, right near and far
        const uint4 b = half[parity * 128 + i * 32];
        multiply_add(sum[i / 2][parity][i % 2 * 2], sine, b.x, b.y);
        multiply_add(sum[i / 2][parity][i % 2 * 2 + 1], sine, b.z, b.w);
      }
    }
    sines += 128, half += 256;
  } while (--steps > 0);
}

struct ShiftParams {
  int height, width, pitch;
  const Field* fields;  // [count]
  const int* count;     // [1]
  Sines sines;          // of y
  int tiles_x;          // of 16 columns, of one half of the width
  Pool pool;
};

// A block takes 16 columns x and their mirror images, W - 1 - x, of both fields, so that half products are read once:
// all at once into shared memory if they fit, for they come from far away. Each of its warps takes some times 16 rows y
// and theirs. The sines of x are in such an order that a lane gets four neighboring columns.
__device__ __forceinline__ void shifts(const ShiftParams& p) {
  __shared__ uint4 shared[kShiftRoom * 256];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int height = p.height, width = p.width, count = *p.count, tile_x = blockIdx.x, x = tile_x * 16 + lane % 4 * 4;
  for (int k = blockIdx.y; k < count; k += gridDim.y) {
    const int number = count - 1 - k;  // backwards: the last half products are still in the L2
    const Field f = p.fields[number];
    uint2* field = f.shift;
    const int steps = f.ky / kK, residual_of_half = p.tiles_x * steps * 256;
    const uint4* half = p.pool.half_products(number) + tile_x * steps * 256;
    const auto copy_some = [&](const uint4* from, int steps, const uint4* others = nullptr) {
      __syncthreads();  // the last ones have been used
      for (int i = threadIdx.x; i < steps * 256; i += blockDim.x) {
        copy_async(shared + i, from + i);
        if (others) copy_async(shared + steps * 256 + i, others + i);
      }
      wait_for_copies();
      __syncthreads();
    };
    const bool fit = (f.split ? 2 : 1) * steps <= kShiftRoom;
    if (fit) copy_some(half, steps, f.split ? half + residual_of_half : nullptr);
    for (int tile = warp; tile - warp < p.sines.tiles; tile += warps) {
      const bool mine = tile < p.sines.tiles;  // or this warp only copies
      const uint4* sines = p.sines.words + tile * p.sines.steps * 128 + lane;
      float sum[2][2][4][4] = {};
#pragma unroll 1
      for (int product = 0; product < (f.split ? 3 : 1); ++product) {  // residuals of sines, then of half products
#pragma unroll 1
        for (int from = 0; from < steps; from += kShiftRoom) {
          const int here = min(kShiftRoom, steps - from);
          if (!fit) copy_some(half + (product == 2) * residual_of_half + from * 256, here);
          if (mine)
            multiply(sum, sines + from * 128 + (product == 1) * 32, shared + (fit && product == 2) * steps * 256 + lane,
                     here);
        }
      }
      if (!mine) continue;
      const int y = tile * 16 + lane / 4;  // and row y + 8
      const int near = y * p.pitch + x, far = (height - 1 - y) * p.pitch + x, to_mirrored = width - 4 - 2 * x;
      const bool wide = f.quantization_step == kWide, whole = x + 4 <= width / 2 && width % 4 == 0 && !wide;
      const float up = f.strength * kFactor *
                       from_bits(0x7f000000 - bits(f.quantization_step));  // over the quantization step, a power of two
      const float2 scale = {up * static_cast<float>(height), up * static_cast<float>(width)};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto store = [&](int at, float sign) {
          Eight d, r;  // down and right
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int eight = i / 2, c = 2 * k + i % 2;
            d.v[i] = fmaf(sign, sum[0][1][eight][c], sum[0][0][eight][c]);
            r.v[i] = fmaf(sign, sum[1][1][eight][c], sum[1][0][eight][c]);
          }
          if (!whole) return store_some(field, wide, at, x, width, d, r, scale);
          const auto code = [&](int i) { return codes(d.v[i], r.v[i], scale); };
          uint32_t* to = reinterpret_cast<uint32_t*>(field) + at;
          *reinterpret_cast<uint4*>(to) = {code(0), code(1), code(2), code(3)};
          *reinterpret_cast<uint4*>(to + to_mirrored) = {code(7), code(6), code(5), code(4)};
        };
        if (y + 8 * k < (height + 1) / 2) store(near + 8 * k * p.pitch, 1.f);
        if (y + 8 * k < height / 2) store(far - 8 * k * p.pitch, -1.f);
      }
    }
  }
}

}  // namespace prime
