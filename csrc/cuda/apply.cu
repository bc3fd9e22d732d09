// Plain kernels, one step of METHOD each, every intermediate in float32. All launch shapes follow from the arguments
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
      : modes_y(modes(a.max_cut, a.height)), modes_x(modes(a.max_cut, a.width)),
        plane(static_cast<int64_t>(a.height) * a.width), image(3 * plane),
        fixed(2 * (a.height - 1) + 2 * (a.width - 1)),
        row(image + a.chains * (2 * image + 2 * (static_cast<int64_t>(modes_y) * modes_x + static_cast<int64_t>(modes_y) * a.width + plane))) {}
};

struct Work {
  ApplyArgs args;
  Layout layout;
  int64_t first_row;  // of this chunk
  float *sine_y, *sine_x;          // [2 (H - 1)], [2 (W - 1)]
  float* clean;                    // [rows, 3, H, W]
  float *ping, *pong;              // [units, 3, H, W]
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
  const int k = blockIdx.x * blockDim.x + threadIdx.x, ny = w.args.height - 1, nx = w.args.width - 1;
  if (k < 2 * ny) w.sine_y[k] = grid_sine(1, k, ny);
  if (k < 2 * nx) w.sine_x[k] = grid_sine(1, k, nx);
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

// Block (mode row, field, unit): row a of B_ab.
__global__ void coefficient_kernel(Work w, int j) {
  Slot s;
  const int unit = blockIdx.z, field = blockIdx.y, a = blockIdx.x + 1;
  if (!spatial_slot(w, unit, j, s) || a > modes(s.last, w.args.height)) return;
  const Stream stream = w.plan(unit / w.args.chains).stream();
  const Purpose purpose = field ? Purpose::column_shift : Purpose::row_shift;
  float* out = w.coefficients + ((static_cast<int64_t>(unit) * 2 + field) * w.layout.modes_y + a - 1) * w.layout.modes_x;
  const int n = row_modes(a, s.last, w.args.width), blocks = run_blocks(n);
  for (int q = threadIdx.x; q < blocks; q += blockDim.x) {
    const auto z = normals(stream.block<uint32_t>(static_cast<uint32_t>(a) * kRun + q, unit % w.args.chains, j, purpose));
    for (int lane = 0; lane < 4; ++lane) {
      const int b = lane * blocks + q + 1;
      if (b <= n) out[b - 1] = z.z[lane] * mode_std(a, b, s.last, w.args.height, w.args.width);
    }
  }
}

// half[a, x] = sum over b of B_ab sin(pi b x / (W - 1)).
__global__ void columns_kernel(Work w, int j) {
  Slot s;
  const Pixel p;
  const int unit = blockIdx.z / 2, field = blockIdx.z % 2, a = p.y + 1, period = 2 * (w.args.width - 1);
  if (!spatial_slot(w, unit, j, s) || !p.inside(w.args.width, modes(s.last, w.args.height))) return;
  const float* b = w.coefficients + ((static_cast<int64_t>(unit) * 2 + field) * w.layout.modes_y + p.y) * w.layout.modes_x;
  const int n = row_modes(a, s.last, w.args.width);
  float sum = 0.f;
  for (int k = 0, r = p.x; k < n; ++k, r += p.x, r -= r >= period ? period : 0) sum = fma(b[k], w.sine_x[r], sum);
  w.half[((static_cast<int64_t>(unit) * 2 + field) * w.layout.modes_y + p.y) * w.args.width + p.x] = sum;
}

// shift[y, x] = sum over a of sin(pi a y / (H - 1)) half[a, x].
__global__ void rows_kernel(Work w, int j) {
  Slot s;
  const Pixel p;
  const int unit = blockIdx.z / 2, field = blockIdx.z % 2, period = 2 * (w.args.height - 1);
  if (!spatial_slot(w, unit, j, s) || !p.inside(w.args.width, w.args.height)) return;
  const float* half = w.half + (static_cast<int64_t>(unit) * 2 + field) * w.layout.modes_y * w.args.width + p.x;
  const int n = modes(s.last, w.args.height);
  float sum = 0.f;
  for (int k = 0, r = p.y; k < n; ++k, r += p.y, r -= r >= period ? period : 0) sum = fma(w.sine_y[r], half[static_cast<int64_t>(k) * w.args.width], sum);
  w.shift[(static_cast<int64_t>(unit) * 2 + field) * w.layout.plane + static_cast<int64_t>(p.y) * w.args.width + p.x] = sum;
}

// n normals of a run times `scale` into shared memory, by the whole block.
__device__ void shared_run(float* out, int n, float scale, Stream stream, int chain, int j, Purpose purpose, int channel) {
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
        const auto z = normals(stream.block<uint32_t>(static_cast<uint32_t>(row) * kRun + p.x % blocks, chain, j, Purpose::noise));
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
  w.sine_y = take(2 * (a.height - 1));
  w.sine_x = take(2 * (a.width - 1));
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
  const int period = 2 * (std::max(a.height, a.width) - 1);
  sine_kernel<<<(period + 255) / 256, 256, 0, stream>>>(w);
  for (int64_t first = 0; first < a.rows; first += chunk) {
    const int64_t rows = std::min(chunk, a.rows - first), live = rows * a.chains;
    w.first_row = first;
    read_kernel<<<tiles(a.height, rows), tile, 0, stream>>>(w);
    for (int j = 0; j < a.depth; ++j) {
      if (a.max_cut > 0) {
        coefficient_kernel<<<dim3(layout.modes_y, 2, static_cast<unsigned>(live)), 64, 0, stream>>>(w, j);
        columns_kernel<<<tiles(layout.modes_y, 2 * live), tile, 0, stream>>>(w, j);
        rows_kernel<<<tiles(a.height, 2 * live), tile, 0, stream>>>(w, j);
      }
      slot_kernel<<<tiles(a.height, live), tile, 0, stream>>>(w, j);
    }
    mix_kernel<<<tiles(a.height, rows), tile, 0, stream>>>(w);
    if (const cudaError_t error = cudaGetLastError()) return error;
  }
  return cudaSuccess;
}

}  // namespace prime
