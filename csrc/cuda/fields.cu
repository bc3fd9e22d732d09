// Displacement fields, D = S_y B S_x^T for every spatial slot of a chunk, by two products on tensor cores with
// half-precision factors and single-precision sums:
//   half products   G[x, a] = sum over b of S_x[x, b] B[a, b],   whose coefficients B are drawn on the spot,
//   shifts          D[y, x] = sum over a of S_y[y, a] G[x, a],
// each for the rows of one half of the axis: with O and E the sums over odd and even modes, rows k and N - k are O + E
// and O - E. Where shifts are large, half precision would be too coarse: then B, the sines and G are each the sum of
// two half-precision numbers (Field::split), and the products of all but the two rests are added.
//
// All factors are kept as the tensor cores want them, so that nothing is rearranged on the way. In mma's m16n8k16 with
// lane 4 g + t, a lane holds rows g and g + 8 of the first factor and of the sum, and column g of the second; of the
// depth (first, second) or the columns (sum) 2 t, 2 t + 1, and in the factors 2 t + 8, 2 t + 9. The sum of the first
// product therefore is the second factor of the second one, lane by lane.
#include <algorithm>

#include "device.cuh"
#include "work.cuh"

namespace prime {
namespace {

constexpr int kHalfThreads = 128, kShiftThreads = 256;  // of a block, at most

// normals() of core/random.h over kFactor, with the GPU's logarithm, sine, cosine and root, whose errors (5e-7) are far
// below half precision.
constexpr float kFactor = -1.17741002f;  // -sqrt(2 ln 2); shift_kernel puts it in
__device__ __forceinline__ Normals<float> fast_normals(Block<uint32_t> b) {
  const auto one_to_two = [](uint32_t word) { return from_bits(as_int(word >> 9 | 0x3f800000u)); };
  const auto radius = [&](uint32_t word) {
    return root(fabsf(binary_logarithm(one_to_two(word) - (1.f - 5.9604645e-8f))));  // of uniform(word)
  };
  const float pi = 3.14159265f;
  const auto angle = [&](uint32_t word) { return fmaf(2.f * pi, one_to_two(word), -3.f * pi); };
  const float r = radius(b.x), s = radius(b.z), u = angle(b.y), v = angle(b.w);
  return {{r * __cosf(u), r * __sinf(u), s * __cosf(v), s * __sinf(v)}};
}

// The sum of 1 / (i^2 + j^2), term by term: a function of its own, because it is long and rarely run.
__device__ __noinline__ float folded_variance(int a, int b, float limit, int height, int width) {
  float variance = 0.f;
  for (int p = 0;; ++p) {
    const float i = static_cast<float>(alias(a, p, height - 1)), b2 = static_cast<float>(b) * static_cast<float>(b);
    if (fmaf(i, i, b2) > limit) return variance;
    for (int q = 0;; ++q) {
      const float j = static_cast<float>(alias(b, q, width - 1)), square = fmaf(i, i, j * j);
      if (square > limit) break;
      variance += reciprocal(square);
    }
  }
}

// Standard deviation of B_ab in row a: the root of the sum of 1 / (i^2 + j^2) over the aliases i of a and j of b inside
// the disc i^2 + j^2 <= cut^2 + cut. Cuts up to 2 N on an axis of N intervals have two, a and 2 N - a, and need no
// loop. Squares are exact in float32.
struct FoldedStd {
  int a, height, width;
  bool few;
  float limit, near, far, period;
  float from, to;  // modes that have no alias inside the disc, and a little less than all of them
  __device__ FoldedStd(int a, int cut, int height, int width)
      : a(a),
        height(height),
        width(width),
        few(cut <= 2 * (height - 1) && cut <= 2 * (width - 1)),
        limit(static_cast<float>(cut * cut + cut)),
        near(static_cast<float>(a * a)),
        period(2.f * static_cast<float>(width - 1)) {
    const float i = 2.f * static_cast<float>(height - 1) - static_cast<float>(a);
    far = i * i;
    from = far <= limit ? root(limit - far) + 1.f : 0.f;
    to = period - root(fmaxf(limit - near, 1.f)) - 1.f;
  }
  // Of modes b .. b + 3, but 0 from mode n + 1 on.
  __device__ __forceinline__ void operator()(float (&std)[4], int b, int n) const {
    const float j = static_cast<float>(b);
#pragma unroll
    for (int i = 0; i < 4; ++i) std[i] = fmaf(j + i, j + i, near);
    if (j >= from && j + 3.f <= to) {
#pragma unroll
      for (int i = 0; i < 4; ++i) std[i] = inverse_root(std[i]);
    } else if (few) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float j2 = std[i] - near, k = period - (j + i), k2 = k * k;
        float variance = reciprocal(std[i]);  // inside, or there would be no such b
        const auto add = [&](float square) { variance += square <= limit ? reciprocal(square) : 0.f; };
        add(far + j2), add(near + k2), add(far + k2);
        std[i] = root(variance);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) std[i] = root(folded_variance(a, b + i, limit, height, width));
    }
    if (b + 3 > n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (b + i > n) std[i] = 0.f;
    }
  }
};

// Two numbers as halves, and what that loses.
__device__ __forceinline__ uint32_t halves(float x, float y) {
  const __half2 h = __floats2half2_rn(x, y);
  uint32_t word;
  memcpy(&word, &h, sizeof word);
  return word;
}
__device__ __forceinline__ uint32_t rests(float x, float y) {
  const float2 back = __half22float2(__floats2half2_rn(x, y));
  return halves(x - back.x, y - back.y);
}

// Draws a lane's coefficients of one step of kK modes of each parity in row a, which holds modes 1 .. n, as halves;
// zeros beyond. put(parity, rest, words): row_shift 2 t and + 8, column_shift 2 t and + 8; `rest`: what rounding lost.
// Both fields have the same standard deviations.
template <class Put>
__device__ __forceinline__ void draw(int step, int a, int n, const Field& f, const FoldedStd& folded_std, Put put) {
  Block<uint32_t> block[2][2];  // [direction][half]
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t counter = static_cast<uint32_t>(a) * kRun + 8 * step + i % 2 * 4 + threadIdx.x % 4;
    block[i / 2][i % 2] =
        f.stream.block<uint32_t>(counter, f.chain, f.slot, i / 2 ? Purpose::column_shift : Purpose::row_shift);
  }
  Normals<float> z[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float std[4];
    folded_std(std, 4 * (8 * step + 4 * half + threadIdx.x % 4) + 1, n);
#pragma unroll
    for (int direction = 0; direction < 2; ++direction) {
      z[direction][half] = fast_normals(block[direction][half]);
#pragma unroll
      for (int i = 0; i < 4; ++i) z[direction][half].z[i] *= std[i];
    }
  }
  const auto put_all = [&](bool rest, auto two) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {  // number 0 is mode 1, which is odd
      const auto words = [&](const Normals<float>& z) { return two(z.z[parity], z.z[parity + 2]); };
      put(parity, rest, uint4{words(z[0][0]), words(z[0][1]), words(z[1][0]), words(z[1][1])});
    }
  };
  put_all(false, halves);
  if (f.split) put_all(true, rests);
}

// The sums over odd and even modes for 16 columns x and twice eight rows a of both fields,
// [direction][eight][parity][4].
template <bool kSplit>
__device__ __forceinline__ void multiply_draws(float (&sum)[2][2][2][4], const uint4* sines, const uint4* draws,
                                               int rest_of_draws, int steps) {
#pragma unroll 1
  do {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const uint4 sine = __ldg(sines + parity * 64);
      uint4 rest_of_sine;
      if constexpr (kSplit) rest_of_sine = __ldg(sines + parity * 64 + 32);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const auto add = [&](uint4 sine, uint4 b) {
          multiply_add(sum[0][eight][parity], sine, b.x, b.y);
          multiply_add(sum[1][eight][parity], sine, b.z, b.w);
        };
        const uint4* draws_at = draws + (eight * 2 + parity) * 32;
        const uint4 b = *draws_at;
        add(sine, b);
        if constexpr (kSplit) add(rest_of_sine, b), add(sine, draws_at[rest_of_draws]);
      }
    }
    sines += 128, draws += 128;
  } while (--steps > 0);
}

// A block takes 16 rows a of B of one parity, one step of the second product, for both fields: its warps, an even
// number, draw them, each some steps of modes for eight of the rows, and multiply them with the sines, each some tiles
// of 16 columns x. kRoom: steps that fit into shared memory; unless all do (kAtOnce), they are drawn again for every
// round of tiles.
template <int kRoom, bool kAtOnce>
__global__ void __launch_bounds__(kHalfThreads, kAtOnce ? 6 : 4) half_product_kernel(Work w) {
  __shared__ uint4 shared[kRoom][2][2][32];  // [step, and rests of steps][eight][parity][lane]
  after_last_kernel();
  const ApplyArgs& args = w.args;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, eight = warp % 2;
  const int count = w.counts[kFields];
  for (int number = blockIdx.y; number < count; number += gridDim.y) {
    const Field f = w.fields[number];
    const int sixteens = f.ky / kK, sixteen = blockIdx.x / 2, parity = blockIdx.x % 2;
    if (sixteen >= sixteens) continue;
    const auto modes_of = [&](int a) { return a <= modes(f.cut, args.height) ? row_modes(a, f.cut, args.width) : 0; };
    const int first = sixteen * 2 * kK + 1 + parity, a = first + eight * kK + lane / 4 * 2;
    const int n = modes_of(a), steps = max((modes_of(first) + 2 * kK - 1) / (2 * kK), 1);
    const int drawn = __shfl_sync(0xffffffff, n, 0);  // of this warp's rows the most
    const int room = f.split ? kRoom / 2 : kRoom;
    const FoldedStd folded_std(a, f.cut, args.height, args.width);
    const auto draw_some = [&](int from, int here) {
      __syncthreads();  // the last ones have been used
      for (int step = warp / 2; step < here; step += warps / 2) {
        const auto put = [&](int parity, bool rest, uint4 words) {
          shared[rest * room + step][eight][parity][lane] = words;
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
    for (int tile = warp; (kAtOnce ? tile : tile - warp) < w.tiles_x; tile += warps) {
      const bool mine = kAtOnce || tile < w.tiles_x;  // or this warp only draws
      float sum[2][2][2][4] = {};                     // [direction][eight][parity]
      const auto multiply_some = [&](int from, int here) {
        if (!mine) return;
        const uint4* sines = w.sine_x + (tile * (w.kx / kK) + from) * 128 + lane;
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
      uint4* out = w.half(number) + (tile * 2 * sixteens + blockIdx.x) * 128 + lane;
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
        if (f.split) write(out + w.tiles_x * 2 * sixteens * 128 + direction * 64, rests);
      }
    }
  }
}

// Operands of the second product for one parity.
struct Operands {
  uint4 sine, half[2][2];  // [direction][near, far]
  __device__ __forceinline__ void read(const uint4* sines, const uint4* halves) {
    sine = __ldg(sines);
#pragma unroll
    for (int i = 0; i < 4; ++i) half[i / 2][i % 2] = __ldg(halves + i * 32);
  }
};

// Adds the sums over odd and even modes for 16 rows y and four times eight columns of both fields,
// [direction][parity][eight][4]. Operands are asked for a parity ahead.
__device__ __forceinline__ void multiply(float (&sum)[2][2][4][4], const uint4* sines, const uint4* half, int steps) {
  Operands operands[2];
  operands[0].read(sines, half);
#pragma unroll 1
  do {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      if (parity == 0 || steps > 1) operands[1 - parity].read(sines + 64, half + 128);
      sines += 64, half += 128;
      const Operands& here = operands[parity];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        multiply_add(sum[i / 2][parity][i % 2 * 2], here.sine, here.half[i / 2][i % 2].x, here.half[i / 2][i % 2].y);
        multiply_add(sum[i / 2][parity][i % 2 * 2 + 1], here.sine, here.half[i / 2][i % 2].z,
                     here.half[i / 2][i % 2].w);
      }
    }
  } while (--steps > 0);
}

// Shifts as codes; times `scale`, they are in units of the field.
__device__ __forceinline__ uint32_t codes(float down, float right, float2 scale) {
  return __byte_perm(bits(fmaf(down, scale.x, kCodeZero)), bits(fmaf(right, scale.y, kCodeZero)), 0x5410);
}

struct Eight {  // shifts of columns x .. x + 3, W - 1 - x .. W - 4 - x
  float v[8];
};

// Stores up to eight pixels, rarely: of wide fields, and of the middle and the end of some widths. `at`: of column x.
__device__ __noinline__ void store_some(uint2* field, bool wide, int at, int x, int width, Eight down, Eight right,
                                        float2 scale) {
  const auto store = [&](int at, float down, float right) {
    if (wide)
      reinterpret_cast<float2*>(field)[at] = {down * scale.x, right * scale.y};
    else
      reinterpret_cast<uint32_t*>(field)[at] = codes(down, right, scale);
  };
  const int last = at + width - 1 - 2 * x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (x + i < (width + 1) / 2) store(at + i, down.v[i], right.v[i]);
    if (x + i < width / 2) store(last - i, down.v[4 + i], right.v[4 + i]);
  }
  if (width % 2 && x == 0) store(last + 1, 0.f, 0.f);  // shifts are read two at a time
}

// A block takes 16 columns x and their mirror images, W - 1 - x, of both fields, so that half products are read once;
// each of its warps takes 16 rows y and theirs. The sines of x are in such an order that a lane gets four neighbouring
// columns.
__global__ void __launch_bounds__(kShiftThreads, 2) shift_kernel(Work w) {
  after_last_kernel();
  const ApplyArgs& args = w.args;
  const int lane = threadIdx.x % 32, height = args.height, width = args.width, count = w.counts[kFields];
  const int tile_x = blockIdx.x, tile_y = blockIdx.z * (blockDim.x / 32) + threadIdx.x / 32;
  if (tile_y >= w.tiles_y) return;
  const uint4* sines = w.sine_y + tile_y * (w.ky / kK) * 128 + lane;
  const int x = tile_x * 16 + lane % 4 * 4, y = tile_y * 16 + lane / 4;  // and row y + 8
  const int near = y * w.pitch + x, far = (height - 1 - y) * w.pitch + x, to_mirrored = width - 4 - 2 * x;
  for (int k = blockIdx.y; k < count; k += gridDim.y) {
    const int number = count - 1 - k;  // backwards: the last half products are still in the L2
    const Field f = w.fields[number];
    uint2* field = f.shift;
    const int steps = f.ky / kK, rest_of_half = w.tiles_x * steps * 256;
    const uint4* half = w.half(number) + tile_x * steps * 256 + lane;
    float sum[2][2][4][4] = {};
#pragma unroll 1
    for (int product = 0; product < (f.split ? 3 : 1); ++product)  // then rests of sines, and rests of half products
      multiply(sum, sines + (product == 1) * 32, half + (product == 2) * rest_of_half, steps);
    const bool wide = f.unit == kWide, whole = x + 4 <= width / 2 && width % 4 == 0 && !wide;
    const float up = f.strength * kFactor * from_bits(0x7f000000 - bits(f.unit));  // over the unit, a power of two
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
      if (y + 8 * k < (height + 1) / 2) store(near + 8 * k * w.pitch, 1.f);
      if (y + 8 * k < height / 2) store(far - 8 * k * w.pitch, -1.f);
    }
  }
}

}  // namespace

cudaError_t fields(const Work& w, cudaStream_t stream) {
  // `across` blocks for a field, and for as many fields at a time as there mostly are, a quarter of all slots; 65,535
  // is CUDA's limit. A second round is mostly empty: few blocks.
  const auto at_a_time = [&](int across, int threads) {
    const int few = w.processors * 512 / threads / across + 1, most = w.units() * w.args.depth / 4 + 1;
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

}  // namespace prime
