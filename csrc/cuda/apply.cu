// One kernel a step of docs/METHOD.md, every intermediate in float32. All launch shapes follow from the arguments
// alone; which primitive a slot holds is read from the plan on the device.
//
// Words: a row is one augmented image; a unit is one chain of one row. Rows are processed in chunks that fit the
// workspace.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "../core/primitives.h"
#include "cuda.h"

namespace prime {
namespace {

constexpr int kTileX = 32, kTileY = 8;
constexpr size_t kWorkspace = size_t(256) << 20;  // bytes
constexpr int kMaxUnits = 65535;                  // grid.z

struct Layout {
  int modes_y, modes_x;
  int64_t plane, image;  // values
  int64_t fixed, row;    // floats of workspace: for the call, and for each row

  explicit Layout(const ApplyArgs& a)
      : modes_y(modes(a.max_cut, a.height)),
        modes_x(modes(a.max_cut, a.width)),
        plane(static_cast<int64_t>(a.height) * a.width),
        image(3 * plane),
        fixed(static_cast<int64_t>(modes_y) * a.height + static_cast<int64_t>(modes_x) * a.width),
        row(image + a.chains * (2 * image + 2 * (static_cast<int64_t>(modes_y) * modes_x +
                                                 static_cast<int64_t>(modes_y) * a.width + plane))) {}
};

struct Work {
  ApplyArgs args;
  Layout layout;
  int64_t first_row;                   // of this chunk
  float *sine_y, *sine_x;              // [modes_y, H], [modes_x, W]: sin(pi mode k / (side - 1))
  float* clean;                        // [rows, 3, H, W]
  float *ping, *pong;                  // [units, 3, H, W]
  float *coefficients, *half, *shift;  // [units, 2, modes_y, modes_x], [units, 2, modes_y, W], [units, 2, H, W]

  __device__ Row<const int32_t> plan(int row) const {
    return {args.plan + (first_row + row) * row_words(args.chains, args.depth), args.chains, args.depth};
  }
  // State of the chains before slot j, and after it.
  __device__ const float* before(int unit, int j) const {
    return j == 0 ? clean + (unit / args.chains) * layout.image : (j % 2 ? ping : pong) + unit * layout.image;
  }
  __device__ float* after(int unit, int j) const { return (j % 2 ? pong : ping) + unit * layout.image; }
};

__device__ float load(const ApplyArgs& a, int64_t at) {
  switch (a.in_type) {
    case DType::u8: return static_cast<float>(static_cast<const uint8_t*>(a.in)[at]) / 255.f;
    case DType::f16: return checked(__half2float(static_cast<const __half*>(a.in)[at]));
    case DType::bf16: return checked(bf16_to_float(static_cast<const uint16_t*>(a.in)[at]));
    default: return checked(static_cast<const float*>(a.in)[at]);
  }
}

__device__ void store(const ApplyArgs& a, int64_t at, float y) {
  switch (a.out_type) {
    case DType::u8: static_cast<uint8_t*>(a.out)[at] = float_to_u8(y); break;
    case DType::f16: static_cast<__half*>(a.out)[at] = __float2half_rn(y); break;
    case DType::bf16: static_cast<uint16_t*>(a.out)[at] = float_to_bf16(y); break;
    default: static_cast<float*>(a.out)[at] = y;
  }
}

struct Pixel {
  int x, y;
  __device__ Pixel() : x(blockIdx.x * kTileX + threadIdx.x), y(blockIdx.y * kTileY + threadIdx.y) {}
  __device__ bool inside(int width, int height) const { return x < width && y < height; }
};

__global__ void sine_kernel(Work w) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x, mode = blockIdx.y;
  const int height = w.args.height, width = w.args.width;
  if (mode < w.layout.modes_y && k < height)
    w.sine_y[static_cast<int64_t>(mode) * height + k] = grid_sine(mode + 1, k, height - 1);
  if (mode < w.layout.modes_x && k < width)
    w.sine_x[static_cast<int64_t>(mode) * width + k] = grid_sine(mode + 1, k, width - 1);
}

__global__ void read_kernel(Work w) {
  const Pixel p;
  const ApplyArgs& a = w.args;
  if (!p.inside(a.width, a.height)) return;
  const int64_t image = (w.first_row + blockIdx.z) % a.images;
  for (int c = 0; c < 3; ++c) {
    const Strides s = a.in_strides;
    w.clean[blockIdx.z * w.layout.image + c * w.layout.plane + static_cast<int64_t>(p.y) * a.width + p.x] =
        load(a, image * s.n + c * s.c + p.y * s.h + p.x * s.w);
  }
}

__device__ bool spatial_slot(const Work& w, int unit, int j, Slot& slot) {
  slot = w.plan(unit / w.args.chains).slot(unit % w.args.chains, j);
  return slot.primitive == kSpatial && valid(slot, w.args.max_cut);
}

// Block (mode row, field, unit): row a of B_ab, zeros outside the disc included.
__global__ void coefficient_kernel(Work w, int j) {
  Slot s;
  const int unit = blockIdx.z, field = blockIdx.y, a = blockIdx.x + 1;
  if (!spatial_slot(w, unit, j, s) || a > modes(s.last, w.args.height)) return;
  const Stream stream = w.plan(unit / w.args.chains).stream();
  const Purpose purpose = field ? Purpose::column_shift : Purpose::row_shift;
  float* out =
      w.coefficients + ((static_cast<int64_t>(unit) * 2 + field) * w.layout.modes_y + a - 1) * w.layout.modes_x;
  const int n = row_modes(a, s.last, w.args.width), blocks = run_blocks(n);
  for (int b = n + threadIdx.x; b < modes(s.last, w.args.width); b += blockDim.x) out[b] = 0.f;
  for (int q = threadIdx.x; q < blocks; q += blockDim.x) {
    const auto z =
        normals(stream.block<uint32_t>(static_cast<uint32_t>(a) * kRun + q, unit % w.args.chains, j, purpose));
    for (int lane = 0; lane < 4; ++lane) {
      const int b = lane * blocks + q + 1;
      if (b <= n) out[b - 1] = z.z[lane] * mode_std(a, b, s.last, w.args.height, w.args.width);
    }
  }
}

// The two matrix products of a field, blocks of kBlock x kBlock outputs, kStep terms at a time through shared memory.
// Every output adds its terms in ascending order, as the CPU does.
//   first:  half[a, x]  = sum over b of B_ab sin(pi b x / (W - 1))
//   second: shift[y, x] = sum over a of sin(pi a y / (H - 1)) half[a, x]
constexpr int kBlock = 64, kStep = 16, kEach = 4;  // kEach x kEach outputs a thread

template <bool kFirst>
__global__ void __launch_bounds__((kBlock / kEach) * (kBlock / kEach)) product_kernel(Work w, int j) {
  __shared__ float left[kStep][kBlock + 4], right[kStep][kBlock];
  Slot s;
  const int unit = blockIdx.z / 2, width = w.args.width, height = w.args.height;
  const int row0 = blockIdx.y * kBlock, column0 = blockIdx.x * kBlock;
  if (!spatial_slot(w, unit, j, s)) return;
  const int rows = kFirst ? modes(s.last, height) : height;
  if (row0 >= rows) return;
  // Rows of B further down have no more terms than the first one of the block.
  const int terms = kFirst ? row_modes(row0 + 1, s.last, width) : modes(s.last, height);
  const float* coefficients = w.coefficients + static_cast<int64_t>(blockIdx.z) * w.layout.modes_y * w.layout.modes_x;
  float* half = w.half + static_cast<int64_t>(blockIdx.z) * w.layout.modes_y * width;
  const float* b = kFirst ? w.sine_x : half;

  const int thread = threadIdx.x, across = thread % (kBlock / kEach) * kEach, down = thread / (kBlock / kEach) * kEach;
  float sum[kEach][kEach] = {};
  for (int k0 = 0; k0 < terms; k0 += kStep) {
    for (int i = thread; i < kStep * kBlock; i += blockDim.x) {
      // Neighbouring threads read neighbouring addresses: along k in the coefficients, along x and y in the others.
      const int k = kFirst ? i % kStep : i / kBlock, row = kFirst ? i / kStep : i % kBlock;
      const bool inside = k0 + k < terms && row0 + row < rows;
      left[k][row] = !inside  ? 0.f
                     : kFirst ? coefficients[static_cast<int64_t>(row0 + row) * w.layout.modes_x + k0 + k]
                              : w.sine_y[static_cast<int64_t>(k0 + k) * height + row0 + row];
    }
    for (int i = thread; i < kStep * kBlock; i += blockDim.x) {
      const int k = i / kBlock, column = i % kBlock;
      const bool inside = k0 + k < terms && column0 + column < width;
      right[k][column] = inside ? b[static_cast<int64_t>(k0 + k) * width + column0 + column] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStep; ++k)
      for (int r = 0; r < kEach; ++r)
        for (int c = 0; c < kEach; ++c) sum[r][c] = fma(left[k][down + r], right[k][across + c], sum[r][c]);
    __syncthreads();
  }
  float* out = kFirst ? half : w.shift + static_cast<int64_t>(blockIdx.z) * w.layout.plane;
  for (int r = 0; r < kEach; ++r)
    for (int c = 0; c < kEach; ++c) {
      const int row = row0 + down + r, column = column0 + across + c;
      if (row < rows && column < width) out[static_cast<int64_t>(row) * width + column] = sum[r][c];
    }
}

// n normals of a run times `scale` into shared memory, by the whole block.
__device__ void shared_run(float* out, int n, float scale, Stream stream, int chain, int j, Purpose purpose,
                           int channel) {
  const int thread = threadIdx.y * kTileX + threadIdx.x, blocks = run_blocks(n);
  for (int q = thread; q < blocks; q += kTileX * kTileY) {
    const auto z = normals(stream.block<uint32_t>(static_cast<uint32_t>(q), chain, j, purpose, channel));
    for (int lane = 0; lane < 4; ++lane)
      if (lane * blocks + q < n) out[lane * blocks + q] = z.z[lane] * scale;
  }
}

// Slot j of every chain.
__global__ void slot_kernel(Work w, int j) {
  __shared__ float table[3 * kMaxColorCut];
  const Pixel p;
  const ApplyArgs& a = w.args;
  const int unit = blockIdx.z, chain = unit % a.chains;
  const Row<const int32_t> plan = w.plan(unit / a.chains);
  Slot s = plan.slot(chain, j);
  if (!valid(s, a.max_cut)) s.primitive = -1;
  const Stream stream = plan.stream();
  const float* src = w.before(unit, j);
  float* dst = w.after(unit, j);
  const int count = s.last - s.first + 1, taps = a.filter * a.filter;

  if (s.primitive == kSpectral) shared_run(table, taps, s.strength, stream, chain, j, Purpose::filter, 0);
  if (s.primitive == kColor)
    for (int c = 0; c < 3; ++c) shared_run(table + c * count, count, s.strength, stream, chain, j, Purpose::color, c);
  __syncthreads();
  if (!p.inside(a.width, a.height)) return;
  const int64_t here = static_cast<int64_t>(p.y) * a.width + p.x;

  Position from_y{}, from_x{};
  if (s.primitive == kSpatial) {
    const float* shift = w.shift + static_cast<int64_t>(unit) * 2 * w.layout.plane + here;
    from_y = displace(p.y, (s.strength * static_cast<float>(a.height)) * shift[0], a.height);
    from_x = displace(p.x, (s.strength * static_cast<float>(a.width)) * shift[w.layout.plane], a.width);
  }
  for (int c = 0; c < 3; ++c) {
    const float* plane = src + c * w.layout.plane;
    float y;
    switch (s.primitive) {
      case kSpectral: {
        const int radius = a.filter / 2;
        y = 0.f;
        for (int ky = 0; ky < a.filter; ++ky)
          for (int kx = 0; kx < a.filter; ++kx) {
            const int yy = p.y + ky - radius, xx = p.x + kx - radius, t = ky * a.filter + kx;
            if (yy < 0 || yy >= a.height || xx < 0 || xx >= a.width) continue;
            y = fma(table[t] + (t == taps / 2 ? 1.f : 0.f), plane[static_cast<int64_t>(yy) * a.width + xx], y);
          }
        y = clip01(y);
        break;
      }
      case kSpatial:
        y = bilinear(plane + static_cast<int64_t>(from_y.pixel) * a.width + from_x.pixel, from_x.next != 0.f,
                     from_y.next != 0.f ? a.width : 0, from_y.next, from_x.next);
        break;
      case kColor: y = color_map(plane[here], table + c * count, s.first, count); break;
      case kNoise: {
        const int blocks = run_blocks(a.width), row = c * a.height + p.y;
        const auto z =
            normals(stream.block<uint32_t>(static_cast<uint32_t>(row) * kRun + p.x % blocks, chain, j, Purpose::noise));
        const int lane = p.x / blocks;
        y = clip01(fma(s.strength, lane == 0 ? z.z[0] : lane == 1 ? z.z[1] : lane == 2 ? z.z[2] : z.z[3], plane[here]));
        break;
      }
      case kIdentity: y = plane[here]; break;
      default: y = not_a_number();
    }
    dst[c * w.layout.plane + here] = y;
  }
}

// out = ((x + sum lambda_i (chain_i - x)) - mean) * scale
__global__ void mix_kernel(Work w) {
  const Pixel p;
  const ApplyArgs& a = w.args;
  if (!p.inside(a.width, a.height)) return;
  const int row = blockIdx.z;
  const Row<const int32_t> plan = w.plan(row);
  for (int c = 0; c < 3; ++c) {
    const int64_t here = c * w.layout.plane + static_cast<int64_t>(p.y) * a.width + p.x;
    const float x = w.clean[row * w.layout.image + here];
    float y = x;
    for (int chain = 0; chain < a.chains; ++chain) {
      const float* end = w.after(row * a.chains + chain, a.depth - 1);
      y = fma(plan.weight(chain + 1), end[here] - x, y);
    }
    const Strides s = a.out_strides;
    store(a, (w.first_row + row) * s.n + c * s.c + p.y * s.h + p.x * s.w, (y - a.mean[c]) * a.scale[c]);
  }
}

int64_t rows_that_fit(const ApplyArgs& a, const Layout& layout, size_t bytes) {
  const int64_t most = std::min<int64_t>(a.rows, kMaxUnits / (2 * a.chains));
  const int64_t fit = (static_cast<int64_t>(bytes / sizeof(float)) - layout.fixed) / layout.row;
  return std::max<int64_t>(std::min(most, fit), 1);
}

int64_t workspace_floats(const Layout& layout, int64_t rows) { return layout.fixed + rows * layout.row; }

}  // namespace

size_t workspace_bytes(const ApplyArgs& a) {
  const Layout layout(a);
  return sizeof(float) * workspace_floats(layout, rows_that_fit(a, layout, kWorkspace));
}

int apply_cuda(const ApplyArgs& a, void* workspace, size_t bytes, void* stream_handle) {
  if (a.rows == 0) return cudaSuccess;
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const Layout layout(a);
  const int64_t chunk = rows_that_fit(a, layout, bytes);
  if (sizeof(float) * workspace_floats(layout, chunk) > bytes) return cudaErrorMemoryAllocation;

  Work w{a, layout};
  float* next = static_cast<float*>(workspace);
  const auto take = [&](int64_t floats) { return (next += floats) - floats; };
  const int64_t units = chunk * a.chains;
  w.sine_y = take(static_cast<int64_t>(layout.modes_y) * a.height);
  w.sine_x = take(static_cast<int64_t>(layout.modes_x) * a.width);
  w.clean = take(chunk * layout.image);
  w.ping = take(units * layout.image);
  w.pong = take(units * layout.image);
  w.coefficients = take(units * 2 * layout.modes_y * layout.modes_x);
  w.half = take(units * 2 * layout.modes_y * a.width);
  w.shift = take(units * 2 * layout.plane);

  const dim3 tile(kTileX, kTileY);
  const auto tiles = [&](int height, int64_t z) {
    return dim3((a.width + kTileX - 1) / kTileX, (height + kTileY - 1) / kTileY, static_cast<unsigned>(z));
  };
  const auto products = [&](int height, int64_t z) {
    return dim3((a.width + kBlock - 1) / kBlock, (height + kBlock - 1) / kBlock, static_cast<unsigned>(z));
  };
  constexpr int kThreads = (kBlock / kEach) * (kBlock / kEach);
  if (a.max_cut > 0)
    sine_kernel<<<dim3((std::max(a.height, a.width) + 255) / 256, std::max(layout.modes_y, layout.modes_x)), 256, 0,
                  stream>>>(w);
  for (int64_t first = 0; first < a.rows; first += chunk) {
    const int64_t rows = std::min(chunk, a.rows - first), live = rows * a.chains;
    w.first_row = first;
    read_kernel<<<tiles(a.height, rows), tile, 0, stream>>>(w);
    for (int j = 0; j < a.depth; ++j) {
      if (a.max_cut > 0) {
        coefficient_kernel<<<dim3(layout.modes_y, 2, static_cast<unsigned>(live)), 64, 0, stream>>>(w, j);
        product_kernel<true><<<products(layout.modes_y, 2 * live), kThreads, 0, stream>>>(w, j);
        product_kernel<false><<<products(a.height, 2 * live), kThreads, 0, stream>>>(w, j);
      }
      slot_kernel<<<tiles(a.height, live), tile, 0, stream>>>(w, j);
    }
    mix_kernel<<<tiles(a.height, rows), tile, 0, stream>>>(w);
    if (const cudaError_t error = cudaGetLastError()) return error;
  }
  return cudaSuccess;
}

}  // namespace prime
