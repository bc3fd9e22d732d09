// Displacement fields, D = S_y B S_x^T for every spatial slot of a chunk: coefficients B drawn into half precision,
// then two products on tensor cores with single-precision sums,
//   half products   G[x, a] = sum over b of S_x[x, b] B[a, b],
//   shifts          D[y, x] = sum over a of S_y[y, a] G[x, a],
// each for the rows of one half of the axis: with O and E the sums over odd and even modes, rows k and N - k are O + E
// and O - E. Where shifts are large, half precision would be too coarse: then B, the sines and G are each the sum of
// two half-precision numbers (Field::split), and the products of all but the two rests are added.
#include "device.cuh"
#include "work.cuh"

namespace prime {
namespace {

constexpr int kColumns = 64;        // of a block's products
constexpr int kDepth = 256;         // of them at a time in shared memory
constexpr int kPitch = kDepth + 8;  // halves; 16-byte rows that start in different banks
constexpr int kProductWarps = 8, kProductThreads = 32 * kProductWarps;

__device__ int parity_index(int mode, int padded) { return (mode - 1 & 1) * padded + (mode - 1 >> 1); }

// normals() of core/random.h with the GPU's sine, cosine and root, whose errors (5e-7) are far below half precision.
__device__ Normals<float> fast_normals(Block<uint32_t> b) {
  const float r = root(-2.f * log(uniform(b.x))), s = root(-2.f * log(uniform(b.z)));
  const float pi = 3.14159265f, u = fmaf(2.f * pi, uniform(b.y), -pi), v = fmaf(2.f * pi, uniform(b.w), -pi);
  return {{-r * __cosf(u), -r * __sinf(u), -s * __cosf(v), -s * __sinf(v)}};
}

// Variance of B_ab in row a: the sum of 1 / (i^2 + j^2) over the aliases i of a and j of b inside the disc
// i^2 + j^2 <= cut^2 + cut. Cuts up to 2 N have two on an axis of N intervals, a and 2 N - a, and need no loop. Squares
// are exact in float32.
struct FoldedVariance {
  int a, height, width;
  bool few;
  float limit, near, far, period;
  __device__ FoldedVariance(int a, int cut, int height, int width)
      : a(a),
        height(height),
        width(width),
        few(cut <= 2 * (height - 1) && cut <= 2 * (width - 1)),
        limit(static_cast<float>(cut * cut + cut)),
        near(static_cast<float>(a * a)),
        period(2.f * static_cast<float>(width - 1)) {
    const float i = 2.f * static_cast<float>(height - 1) - static_cast<float>(a);
    far = i * i;
  }
  __device__ float operator()(int b) const {
    if (!few) return sum(b);
    const float j = static_cast<float>(b), k = period - j, j2 = j * j, k2 = k * k;
    float variance = reciprocal(near + j2);  // inside, or there would be no such b
    const auto add = [&](float square) {
      if (square <= limit) variance += reciprocal(square);
    };
    add(far + j2), add(near + k2), add(far + k2);
    return variance;
  }
  __device__ __noinline__ float sum(int b) const {
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
};

// Four coefficients of one row a of B a thread, for both fields. Beyond the disc nothing is written but what fills the
// last 16 bytes up; the products skip the rest.
constexpr int kCoefficientThreads = 128;
__global__ void __launch_bounds__(kCoefficientThreads) coefficient_kernel(Work w) {
  const ApplyArgs& args = w.args;
  const int most = modes(args.max_cut, args.height) * run_blocks(modes(args.max_cut, args.width));
  const int blocks_a_field = (most + kCoefficientThreads - 1) / kCoefficientThreads;
  const int total = *w.field_count * blocks_a_field;
  for (int item = blockIdx.x; item < total; item += gridDim.x) {
    const int number = item / blocks_a_field, thread = item % blocks_a_field * kCoefficientThreads + threadIdx.x;
    const Field f = w.fields[number];
    const int across = run_blocks(modes(f.cut, args.width)), a = thread / across + 1, q = thread % across;
    if (a > modes(f.cut, args.height)) continue;
    const int n = row_modes(a, f.cut, args.width), blocks = run_blocks(n), chain = f.unit % args.chains;
    if (q >= blocks) continue;
    const Stream stream = w.plan(f.unit / args.chains).stream();
    const uint32_t counter = static_cast<uint32_t>(a) * kRun + q;
    const auto u = fast_normals(stream.block<uint32_t>(counter, chain, f.slot, Purpose::row_shift));
    const auto v = fast_normals(stream.block<uint32_t>(counter, chain, f.slot, Purpose::column_shift));
    const int64_t rest = int64_t(4) * f.ky * f.kx;
    __half* out = w.coefficients + static_cast<int64_t>(number) * 2 * w.field_halves + parity_index(a, f.ky) * 2 * f.kx;
    const FoldedVariance variance(a, f.cut, args.height, args.width);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int b = i * blocks + q + 1;
      if (b > n) break;
      const float std = root(variance(b));
      __half* at = out + parity_index(b, f.kx);
#pragma unroll
      for (int field = 0; field < 2; ++field) {
        const float z = (field ? v.z[i] : u.z[i]) * std;
        const __half value = __float2half_rn(z);
        at[field * w.field_halves] = value;
        if (f.split) at[field * w.field_halves + rest] = __float2half_rn(z - __half2float(value));
      }
      if (b + 2 <= n) continue;
#pragma unroll 1
      for (int k = 1; ((b - 1) / 2 + k) % 8 != 0; ++k)  // the last of its parity fills its 16 bytes up
        for (int plane = 0; plane < 2 + 2 * f.split; ++plane)
          at[plane % 2 * w.field_halves + plane / 2 * rest + k] = __float2half_rn(0.f);
    }
  }
}

// One step of kK terms for 16 rows and 8 kEights columns: `rest` is the part of the sines that half precision lost.
template <bool kRest, int n = 0, int kEights>
__device__ __forceinline__ void step(float (&sum)[kEights][4], uint4 sine, uint4 rest, SharedAddress operand) {
  if constexpr (n < kEights) {
    const uint4 m = load_matrices<n * 8 * kPitch* int(sizeof(__half))>(operand);
    multiply_add(sum[n], sine, m.x, m.y);
    multiply_add(sum[n + 1], sine, m.z, m.w);
    if constexpr (kRest) {
      multiply_add(sum[n], rest, m.x, m.y);
      multiply_add(sum[n + 1], rest, m.z, m.w);
    }
    step<kRest, n + 2>(sum, sine, rest, operand);
  }
}

template <bool kRest, int kEights>
__device__ __forceinline__ void accumulate(float (&sum)[kEights][4], const uint4* sine, int64_t rest,
                                           SharedAddress operand, int steps) {
  if (steps <= 0) return;
  uint4 next = __ldg(sine), next_rest = kRest ? __ldg(sine + rest) : uint4{};
#pragma unroll 2
  for (int k = 0; k < steps; ++k) {
    const uint4 now = next, now_rest = next_rest;
    sine += 32;
    if (k + 1 < steps) {
      next = __ldg(sine);
      if constexpr (kRest) next_rest = __ldg(sine + rest);
    }
    step<kRest>(sum, now, now_rest, operand);
    operand += kK * sizeof(__half);
  }
}

// The second operand of a product and what it is multiplied with.
struct Operand {
  const __half* rows;  // [columns of the product][parity][depth]
  int64_t rest;        // where the rests are, in halves from `rows`
  int columns, depth;  // depth of one parity: the pitch is twice that
};

// C[row, column] = sum over k of sine[row, k] operand[column, k], for kColumns columns from `column0` and all rows.
//   count(column, parity): how many leading k of that column are there, filled up with zeros to a multiple of 8; what
//   comes after them counts as zeros.
//   used: no column of the block has more, a multiple of kK.
//   writer(row, column)(further, above, below): takes the sums of columns column + further .. + 3 for rows `row` and
//   its mirror image.
// A warp takes 16 rows and 8 kEights columns: all of the block's where there are rows enough for all warps, else fewer.
template <int kEights, class Count, class Writer>
__device__ void product(const uint4* sines, int tiles, int steps, const Operand& b, int column0, int used, bool split,
                        Count count, Writer writer) {
  __shared__ __align__(16) __half shared[kColumns * kPitch];
  constexpr int kWarpColumns = 8 * kEights, kAcross = kColumns / kWarpColumns;  // warps side by side
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp % kAcross * kWarpColumns;
  // Shared memory holds, of every column, sections of `room` terms: 2 * rest + parity.
  const int sections = split ? 4 : 2, room = kDepth / sections;
  const int64_t rest_of_sines = static_cast<int64_t>(2) * tiles * steps * 32;
  const SharedAddress lane_operand =
      shared_address(shared + (first + lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8);
  for (int tile0 = 0; tile0 < tiles; tile0 += kProductWarps / kAcross) {
    const int tile = tile0 + warp / kAcross;
    float sum[2][kEights][4] = {};
    for (int from = 0; from < used; from += room) {
      const int terms = min(room, used - from);
      if (tile0 == 0 || used > room) {
        __syncthreads();
        for (int column = threadIdx.x / 8; column < kColumns; column += kProductThreads / 8) {
          const bool there = column0 + column < b.columns;
          const __half* row = b.rows + static_cast<int64_t>(there ? column0 + column : 0) * 2 * b.depth + from;
          // Of every 16 columns, 4 t + 2 i + e goes where column 2 t + e of the i-th 8 belongs: then a lane's sums are
          // those of four neighbours.
          __half* to = shared + (column / 16 * 16 + column / 2 % 2 * 8 + column / 4 % 4 * 2 + column % 2) * kPitch;
#pragma unroll
          for (int parity = 0; parity < 2; ++parity) {
            const int valid = there ? count(column0 + column, parity) - from : 0;
            for (int section = parity; section < sections; section += 2)
#pragma unroll 2
              for (int k = threadIdx.x % 8 * 8; k < terms; k += 64)
                copy_eight(to + section * room + k, row + section / 2 * b.rest + parity * b.depth + k, k < valid);
          }
        }
        wait_for_copies();
      }
      if (tile >= tiles) continue;
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        const uint4* sine = sines + ((parity * tiles + tile) * steps + from / kK) * 32 + lane;
        const auto section = [&](int s) { return lane_operand + s * room * static_cast<int>(sizeof(__half)); };
        if (split) {
          accumulate<true>(sum[parity], sine, rest_of_sines, section(parity), terms / kK);
          accumulate<false>(sum[parity], sine, 0, section(2 + parity), terms / kK);
        } else {
          accumulate<false>(sum[parity], sine, 0, section(parity), terms / kK);
        }
      }
    }
    if (tile >= tiles) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto write = writer(tile * 16 + lane / 4 + 8 * i, column0 + first + lane % 4 * 4);
#pragma unroll
      for (int n = 0; n < kEights; n += 2) {
        const auto four = [&](const float(&s)[kEights][4]) {
          return float4{s[n][2 * i], s[n][2 * i + 1], s[n + 1][2 * i], s[n + 1][2 * i + 1]};
        };
        const float4 odd = four(sum[0]), even = four(sum[1]);
        write(8 * n, float4{odd.x + even.x, odd.y + even.y, odd.z + even.z, odd.w + even.w},
              float4{odd.x - even.x, odd.y - even.y, odd.z - even.z, odd.w - even.w});
      }
    }
  }
}

union Halves {
  __half2 two[2];
  uint2 all;
};

// Four numbers as halves; what that lost is left in `v`.
__device__ __forceinline__ void put(__half* to, float4& v) {
  const Halves h{{__floats2half2_rn(v.x, v.y), __floats2half2_rn(v.z, v.w)}};
  *reinterpret_cast<uint2*>(to) = h.all;
  const float2 a = __half22float2(h.two[0]), b = __half22float2(h.two[1]);
  v = {v.x - a.x, v.y - a.y, v.z - b.x, v.w - b.y};
}

// Work items: (field, direction, kColumns columns).
struct Item {
  int number, direction, column0;
  __device__ Item(int item, int blocks)
      : number(item / (2 * blocks)), direction(item / blocks % 2), column0(item % blocks * kColumns) {}
  // Where its part of an array [fields, 2, size] is.
  __device__ int64_t at(int64_t size) const { return (static_cast<int64_t>(number) * 2 + direction) * size; }
};

template <int kEights>
__global__ void __launch_bounds__(kProductThreads, 2) half_product_kernel(Work w) {
  const ApplyArgs& args = w.args;
  const int blocks = (2 * w.ky + kColumns - 1) / kColumns, total = *w.field_count * 2 * blocks;
  for (int i = blockIdx.x; i < total; i += gridDim.x) {
    const Item item(i, blocks);
    const Field f = w.fields[item.number];
    if (item.column0 >= 2 * f.ky) continue;
    const int rows = modes(f.cut, args.height), width = args.width;
    // Column parity * ky + i is mode 2 i + 1 + parity of the vertical axis; its disc holds so many horizontal ones.
    const auto mode = [&](int column) { return column % f.ky * 2 + 1 + column / f.ky; };
    const auto count = [&](int column, int parity) {
      const int a = mode(column);
      return a > rows ? 0 : (row_modes(a, f.cut, width) + 1 - parity) / 2;
    };
    const bool both = item.column0 < f.ky && item.column0 + kColumns > f.ky;  // parities
    const int most = row_modes(both ? 1 : mode(item.column0), f.cut, width);
    const Operand b{w.coefficients + item.at(w.field_halves), int64_t(4) * f.ky * f.kx, 2 * f.ky, f.kx};
    __half* out = w.half + item.at(w.half_halves);
    const int64_t rest = static_cast<int64_t>(width) * 2 * f.ky;
    product<kEights>(w.sine_x, w.tiles_x, w.kx / kK, b, item.column0, parity_pad(most), f.split != 0, count,
                     [&](int x, int column) {
                       __half* upper = out + static_cast<int64_t>(x) * 2 * f.ky + column;
                       __half* lower = out + static_cast<int64_t>(width - 1 - x) * 2 * f.ky + column;
                       const int room = x < (width + 1) / 2 ? 2 * f.ky - column : 0;
                       return [=](int further, float4 above, float4 below) {
                         if (further >= room) return;
                         put(upper + further, above);
                         put(lower + further, below);
                         if (f.split) put(upper + rest + further, above), put(lower + rest + further, below);
                       };
                     });
  }
}

template <int kEights>
__global__ void __launch_bounds__(kProductThreads, 2) shift_kernel(Work w) {
  const ApplyArgs& args = w.args;
  const int blocks = (args.width + kColumns - 1) / kColumns, total = *w.field_count * 2 * blocks;
  for (int i = blockIdx.x; i < total; i += gridDim.x) {
    const Item item(i, blocks);
    const Field f = w.fields[item.number];
    const Operand b{w.half + item.at(w.half_halves), static_cast<int64_t>(args.width) * 2 * f.ky, args.width, f.ky};
    const float pixels = f.strength * static_cast<float>(item.direction ? args.width : args.height);
    float* out = w.shift + item.at(w.pixels);
    product<kEights>(
        w.sine_y, w.tiles_y, w.ky / kK, b, item.column0, f.ky, f.split != 0, [&](int, int) { return f.ky; },
        [&](int y, int x) {
          const int64_t upper = static_cast<int64_t>(y) * w.pitch + x,
                        lower = static_cast<int64_t>(args.height - 1 - y) * w.pitch + x;
          const int room = y < (args.height + 1) / 2 ? args.width - x : 0;
          return [=](int further, float4 above, float4 below) {
            if (further >= room) return;
            const auto times = [=](float4 d) { return float4{d.x * pixels, d.y * pixels, d.z * pixels, d.w * pixels}; };
            above = times(above), below = times(below);
            if (f.wide) {
              *reinterpret_cast<float4*>(out + upper + further) = above;
              *reinterpret_cast<float4*>(out + lower + further) = below;
            } else {
              put(reinterpret_cast<__half*>(out) + upper + further, above);
              put(reinterpret_cast<__half*>(out) + lower + further, below);
            }
          };
        });
  }
}

}  // namespace

void fields(const Work& w, cudaStream_t stream) {
  coefficient_kernel<<<w.processors * 16, kCoefficientThreads, 0, stream>>>(w);
  if (w.tiles_x > 2)
    half_product_kernel<8><<<w.processors * 4, kProductThreads, 0, stream>>>(w);
  else
    half_product_kernel<2><<<w.processors * 4, kProductThreads, 0, stream>>>(w);
  if (w.tiles_y > 2)
    shift_kernel<8><<<w.processors * 4, kProductThreads, 0, stream>>>(w);
  else
    shift_kernel<2><<<w.processors * 4, kProductThreads, 0, stream>>>(w);
}

}  // namespace prime
