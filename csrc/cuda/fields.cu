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

constexpr int kFieldThreads = 128;  // of a block, at most

// normals() of core/random.h with the GPU's logarithm, sine, cosine and root, whose errors (5e-7) are far below half
// precision.
__device__ __forceinline__ Normals<float> fast_normals(Block<uint32_t> b) {
  const auto one_to_two = [](uint32_t word) { return from_bits(as_int(word >> 9 | 0x3f800000u)); };
  const auto radius = [&](uint32_t word) {
    return root(fabsf(-2.f * logarithm(one_to_two(word) - (1.f - 5.9604645e-8f))));  // of uniform(word)
  };
  const float pi = 3.14159265f;
  const auto angle = [&](uint32_t word) { return fmaf(2.f * pi, one_to_two(word), -3.f * pi); };
  const float r = radius(b.x), s = radius(b.z), u = angle(b.y), v = angle(b.w);
  return {{-r * __cosf(u), -r * __sinf(u), -s * __cosf(v), -s * __sinf(v)}};
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
// the disc i^2 + j^2 <= cut^2 + cut. Cuts below N have no aliases on an axis of N intervals; cuts up to 2 N have two, a
// and 2 N - a; neither needs a loop. Squares are exact in float32.
struct FoldedStd {
  int a, height, width;
  bool none, few;
  float limit, near, far, period;
  __device__ FoldedStd(int a, int cut, int height, int width)
      : a(a),
        height(height),
        width(width),
        none(cut < height - 1 && cut < width - 1),
        few(cut <= 2 * (height - 1) && cut <= 2 * (width - 1)),
        limit(static_cast<float>(cut * cut + cut)),
        near(static_cast<float>(a * a)),
        period(2.f * static_cast<float>(width - 1)) {
    const float i = 2.f * static_cast<float>(height - 1) - static_cast<float>(a);
    far = i * i;
  }
  // Of modes b .. b + 3, but 0 from mode n + 1 on.
  __device__ __forceinline__ void operator()(float (&std)[4], int b, int n) const {
    const float j = static_cast<float>(b);
#pragma unroll
    for (int i = 0; i < 4; ++i) std[i] = fmaf(j + i, j + i, near);
    if (none) {
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
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (b + i > n) std[i] = 0.f;
  }
};

// Two numbers as halves; what that lost is left in them.
__device__ __forceinline__ uint32_t halves(float& x, float& y) {
  const __half2 h = __floats2half2_rn(x, y);
  const float2 back = __half22float2(h);
  x -= back.x, y -= back.y;
  uint32_t word;
  memcpy(&word, &h, sizeof word);
  return word;
}

// Draws a lane's coefficients of one step of kK modes of each parity in row a, which holds modes 1 .. n, as halves;
// zeros beyond. put(parity, rest, words): row_shift 2 t and + 8, column_shift 2 t and + 8; `rest`: what rounding lost.
// Both fields have the same standard deviations.
template <class Put>
__device__ __forceinline__ void draw(int step, int a, int n, const Field& f, Stream stream, const FoldedStd& folded_std,
                                     Put put) {
  Normals<float> z[2][2];  // [direction][half]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int q = 8 * step + 4 * half + threadIdx.x % 4;
    const uint32_t counter = static_cast<uint32_t>(a) * kRun + q;
    z[0][half] = fast_normals(stream.block<uint32_t>(counter, f.chain, f.slot, Purpose::row_shift));
    z[1][half] = fast_normals(stream.block<uint32_t>(counter, f.chain, f.slot, Purpose::column_shift));
    float std[4];
    folded_std(std, 4 * q + 1, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) z[0][half].z[i] *= std[i], z[1][half].z[i] *= std[i];
  }
  const auto words = [&](int parity) {  // number 0 is mode 1, which is odd
    const auto two = [&](Normals<float>& z) { return halves(z.z[parity], z.z[parity + 2]); };
    return uint4{two(z[0][0]), two(z[0][1]), two(z[1][0]), two(z[1][1])};
  };
#pragma unroll
  for (int parity = 0; parity < 2; ++parity) {
    put(parity, false, words(parity));
    if (f.split) put(parity, true, words(parity));
  }
}

// The sums over odd and even modes for 16 columns x and eight rows a of both fields, [direction][parity][4].
template <bool kSplit>
__device__ __forceinline__ void multiply_draws(float (&sum)[2][2][4], const uint4* sines, int parity_sines,
                                               int rest_of_sines, const uint4* draws, int rest_of_draws, int steps) {
  constexpr int kUnroll = kSplit ? 1 : 2;
#pragma unroll kUnroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const auto add = [&](uint4 sine, uint4 b) {
        multiply_add(sum[0][parity], sine, b.x, b.y);
        multiply_add(sum[1][parity], sine, b.z, b.w);
      };
      const uint4 *sine_at = sines + parity * parity_sines, *draws_at = draws + parity * 32;
      const uint4 sine = __ldg(sine_at), b = *draws_at;
      add(sine, b);
      if constexpr (kSplit) add(__ldg(sine_at + rest_of_sines), b), add(sine, draws_at[rest_of_draws]);
    }
    sines += 32, draws += 64;
  }
}

// A block takes eight rows a of B of one parity, for both fields: its warps draw them, each some steps of modes, and
// multiply them with the sines, each some tiles of 16 columns x. kRoom: steps that fit into shared memory; where more
// are needed, they are drawn again for every round of tiles.
template <int kRoom>
__global__ void __launch_bounds__(kFieldThreads, 5) half_product_kernel(Work w) {
  __shared__ uint4 shared[kRoom][2][32];  // [step, and rests of steps][parity][lane]
  const ApplyArgs& args = w.args;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int count = w.counts[0], eight = blockIdx.x, parity_sines = w.tiles_x * (w.kx / kK) * 32;
  for (int number = blockIdx.y; number < count; number += gridDim.y) {
    const Field f = w.fields[number];
    const int eights = f.ky / 4, parity = 2 * eight >= eights;
    if (eight >= eights) continue;
    const int a = (eight - parity * eights / 2) * 16 + lane / 4 * 2 + 1 + parity;
    const int n = a <= modes(f.cut, args.height) ? row_modes(a, f.cut, args.width) : 0;
    const int most = __shfl_sync(0xffffffff, n, 0), steps = (most + 2 * kK - 1) / (2 * kK);
    const int room = f.split ? kRoom / 2 : kRoom;
    const Stream stream = w.plan(f.row).stream();
    const FoldedStd folded_std(a, f.cut, args.height, args.width);
    for (int tile = warp; tile - warp < w.tiles_x; tile += warps) {
      float sum[2][2][4] = {};  // [direction][parity]
      for (int from = 0; from < steps; from += room) {
        const int here = min(room, steps - from);
        if (tile == warp || steps > room) {
          __syncthreads();  // the last ones have been used
          for (int step = warp; step < here; step += warps) {
            draw(from + step, a, n, f, stream, folded_std,
                 [&](int parity, bool rest, uint4 words) { shared[rest * room + step][parity][lane] = words; });
          }
          __syncthreads();
        }
        if (tile >= w.tiles_x) continue;
        const uint4* sines = w.sine_x + (tile * (w.kx / kK) + from) * 32 + lane;
        if (f.split)
          multiply_draws<true>(sum, sines, parity_sines, 2 * parity_sines, &shared[0][0][lane], room * 64, here);
        else
          multiply_draws<false>(sum, sines, parity_sines, 2 * parity_sines, &shared[0][0][lane], room * 64, here);
      }
      if (tile >= w.tiles_x) continue;
#pragma unroll
      for (int direction = 0; direction < 2; ++direction) {
        uint4* out = w.half + (static_cast<int64_t>(number) * 2 + direction) * w.half_words +
                     (tile * eights + eight) * 32 + lane;
        const float(&o)[4] = sum[direction][0], (&e)[4] = sum[direction][1];
        float near[4], far[4];  // columns x, and W - 1 - x
#pragma unroll
        for (int k = 0; k < 4; ++k) near[k] = o[k] + e[k], far[k] = o[k] - e[k];
        const auto all = [&] {
          return uint4{halves(near[0], near[1]), halves(near[2], near[3]), halves(far[0], far[1]),
                       halves(far[2], far[3])};
        };
        out[0] = all();
        if (f.split) out[w.tiles_x * eights * 32] = all();
      }
    }
  }
}

// The sums over odd and even modes for 16 rows y and four times eight columns, [parity][eight][4].
template <bool kSplit>
__device__ __forceinline__ void multiply(float (&sum)[2][4][4], const uint4* sines, int parity_sines, int rest_of_sines,
                                         const uint4* half, int parity_half, int rest_of_half, int steps) {
  constexpr int kUnroll = kSplit ? 1 : 2;
#pragma unroll kUnroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      const auto add = [&](uint4 sine, uint4 b0, uint4 b1) {
        multiply_add(sum[parity][0], sine, b0.x, b1.x);
        multiply_add(sum[parity][1], sine, b0.y, b1.y);
        multiply_add(sum[parity][2], sine, b0.z, b1.z);
        multiply_add(sum[parity][3], sine, b0.w, b1.w);
      };
      const uint4 *sine_at = sines + parity * parity_sines, *half_at = half + parity * parity_half;
      const uint4 sine = __ldg(sine_at), b0 = __ldg(half_at), b1 = __ldg(half_at + 32);
      add(sine, b0, b1);
      if constexpr (kSplit) {
        add(__ldg(sine_at + rest_of_sines), b0, b1);
        add(sine, __ldg(half_at + rest_of_half), __ldg(half_at + rest_of_half + 32));
      }
    }
    sines += 32, half += 64;
  }
}

// Shifts in single or half precision: four neighbours at a multiple of 4, or up to four in either direction.
__device__ __forceinline__ void store_four(float* field, bool wide, int at, float4 v) {
  if (wide) {
    *reinterpret_cast<float4*>(field + at) = v;
  } else {
    const uint32_t first = halves(v.x, v.y), second = halves(v.z, v.w);
    *reinterpret_cast<uint2*>(reinterpret_cast<__half*>(field) + at) = {first, second};
  }
}
__device__ __noinline__ void store_some(float* field, bool wide, int at, int next, int count, float4 v) {
  const float all[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i, at += next) {
    if (i >= count) return;
    if (wide)
      field[at] = all[i];
    else
      reinterpret_cast<__half*>(field)[at] = __float2half_rn(all[i]);
  }
}

// A block takes 16 columns x and their mirror images, W - 1 - x, of one field; its warps take tiles of 16 rows y and
// theirs. The sines of x are in such an order that a lane gets four neighbouring columns.
__global__ void __launch_bounds__(kFieldThreads, 4) shift_kernel(Work w) {
  const ApplyArgs& args = w.args;
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int height = args.height, width = args.width, count = w.counts[0];
  const int direction = blockIdx.x >= w.tiles_x, tile_x = blockIdx.x - direction * w.tiles_x;
  for (int number = blockIdx.y; number < count; number += gridDim.y) {
    const Field f = w.fields[number];
    const int eights = f.ky / 4, steps = f.ky / kK, parity_sines = w.tiles_y * (w.ky / kK) * 32;
    const uint4* half = w.half + (int64_t(2) * number + direction) * w.half_words + tile_x * eights * 32 + lane;
    const float pixels = f.strength * static_cast<float>(direction ? width : height);
    float* field = w.shift + (int64_t(2) * number + direction) * w.pixels;
    for (int tile = threadIdx.x / 32; tile < w.tiles_y; tile += warps) {
      float sum[2][4][4] = {};
      const uint4* sines = w.sine_y + tile * (w.ky / kK) * 32 + lane;
      const int parity_half = eights / 2 * 32, rest_of_half = w.tiles_x * eights * 32;
      if (f.split)
        multiply<true>(sum, sines, parity_sines, 2 * parity_sines, half, parity_half, rest_of_half, steps);
      else
        multiply<false>(sum, sines, parity_sines, 2 * parity_sines, half, parity_half, rest_of_half, steps);
      const int x = tile_x * 16 + lane % 4 * 4;  // of so many columns, of which the middle one has no mirror image:
      const int columns = min(4, (width + 1) / 2 - x), mirrored = min(4, width / 2 - x);
#pragma unroll
      for (int k = 0; k < 2; ++k) {  // rows g and g + 8
        const int y = tile * 16 + lane / 4 + 8 * k;
        const auto store = [&](int row, float sign) {
          float v[8];  // columns x .. x + 3, W - 1 - x .. W - 4 - x
#pragma unroll
          for (int c = 0; c < 8; ++c)
            v[c] = pixels * fmaf(sign, sum[1][c / 2][2 * k + c % 2], sum[0][c / 2][2 * k + c % 2]);
          const int at = row * w.pitch + x, far = row * w.pitch + width - 1 - x;
          if (columns == 4 && width % 4 == 0) {
            store_four(field, f.wide, at, {v[0], v[1], v[2], v[3]});
            store_four(field, f.wide, far - 3, {v[7], v[6], v[5], v[4]});
          } else {
            store_some(field, f.wide, at, 1, columns, {v[0], v[1], v[2], v[3]});
            store_some(field, f.wide, far, -1, mirrored, {v[4], v[5], v[6], v[7]});
            if (width % 2 && x == 0) store_some(field, f.wide, far + 1, 1, 1, {});  // shifts are read two at a time
          }
        };
        if (y < (height + 1) / 2) store(y, 1.f);
        if (y < height / 2) store(height - 1 - y, -1.f);
      }
    }
  }
}

}  // namespace

void fields(const Work& w, cudaStream_t stream) {
  const auto blocks = [&](int across, int threads) {  // some for every field, and enough to fill the GPU
    return dim3(across, (w.processors * 2048 / threads + across - 1) / across);
  };
  const int half_threads = 32 * std::min(kFieldThreads / 32, w.tiles_x);
  const dim3 half_blocks = blocks(w.ky / 4, half_threads);
  if (w.kx / kK <= 8)
    half_product_kernel<16><<<half_blocks, half_threads, 0, stream>>>(w);
  else
    half_product_kernel<32><<<half_blocks, half_threads, 0, stream>>>(w);
  const int shift_threads = 32 * std::min(kFieldThreads / 32, w.tiles_y);
  const dim3 shift_blocks = blocks(2 * w.tiles_x, shift_threads);
  shift_kernel<<<shift_blocks, shift_threads, 0, stream>>>(w);
}

}  // namespace prime
