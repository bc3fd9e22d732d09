// The kernels that go over pixels, the mix, and what is launched for a batch. Launch shapes follow from the arguments
// alone; what each slot does is read from the plan on the device.
#include <algorithm>

#include "passes.cuh"

namespace prime {
namespace {

// Pass `number` of the chains that have more to come.
template <bool k3x3>
__global__ void __launch_bounds__(kThreads, 4) pass_kernel(Work w, int number) {
  __shared__ Table table;
  const Place o(w, kPassRows);
  const int count = w.counts[1 + number], *to_do = w.to_do + number * w.units();
  for (int i = blockIdx.y; i < count; i += gridDim.y) {
    const int unit = to_do[i];
    const Pass pass = w.passes[unit * w.args.depth + number];
    const bool tabulated = tabulate(table, w, unit, pass);
    if (o.y >= w.args.height) continue;
    uint4* out = reinterpret_cast<uint4*>(w.image[number % 2] + unit * w.pixels + (o.y * w.pitch + o.x));
    run_pass<k3x3, kPassRows>(w, o, unit, pass, table, tabulated, [&](int r, const Two& v) {
      const uint2 left = encode(v[0]), right = encode(v[1]);
      if (o.y + r < w.args.height) out[static_cast<unsigned>(r * w.pitch) / 2] = {left.x, left.y, right.x, right.y};
    });
  }
}

// How the output is written: pairs of neighbouring values where addresses allow it.
enum class Writing { scalar, planes, pixels };

// Two pixels of the input, exactly: bytes from the packed image, others from where they came from.
__device__ __forceinline__ void read_two(float (&v)[2][3], const Work& w, int image, int y, int x) {
  const ApplyArgs& a = w.args;
  if (a.in_type == DType::u8) {
    const uint4 two = __ldg(reinterpret_cast<const uint4*>(w.packed + image * w.pixels + y * w.pitch + x));
    const Raw left = decode({two.x, two.y}), right = decode({two.z, two.w});
#pragma unroll
    for (int c = 0; c < 3; ++c) v[0][c] = nearest(left.c[c] - 1.f), v[1][c] = nearest(right.c[c] - 1.f);
    return;
  }
  const Strides s = a.in_strides;
  const int64_t at = (w.first_image + image) * s.n + y * s.h + x * s.w, next = x + 1 < a.width ? s.w : 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) v[i / 3][i % 3] = load(a, at + i / 3 * next + i % 3 * s.c);
}

using Mix = float[kRows * 6][kThreads];  // [row, column, channel][thread]

__device__ __forceinline__ float normalised(const ApplyArgs& a, float y, int c) {
  return fmaf(y, a.scale[c], -a.mean[c] * a.scale[c]);
}

// Writes this thread's pixels into planes, or one by one.
__device__ __forceinline__ void write_planes(const Mix& mix, const Work& w, Place o, Writing writing, int64_t offset,
                                             bool flip) {
  const ApplyArgs& a = w.args;
  const Strides s = a.out_strides;
  offset += o.y * s.h;
#pragma unroll 1
  for (int r = 0; r < kRows && o.y + r < a.height; ++r, offset += s.h) {
    float v[6];
#pragma unroll
    for (int i = 0; i < 6; ++i) v[i] = normalised(a, mix[r * 6 + i][threadIdx.x], i % 3);
    if (writing == Writing::planes) {
#pragma unroll
      for (int c = 0; c < 3; ++c)
        store_two(a, offset + c * s.c + (flip ? a.width - 2 - o.x : o.x), v[flip ? 3 + c : c], v[flip ? c : 3 + c]);
    } else {
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const int x = o.x + i / 3;
        if (x < a.width) store(a, offset + i % 3 * s.c + (flip ? a.width - 1 - x : x) * s.w, v[i]);
      }
    }
  }
}

// Writes the block's interleaved pixels: two neighbouring values a thread, neighbouring threads side by side.
__device__ __forceinline__ void write_pixels(const Mix& mix, const Work& w, int64_t offset, bool flip) {
  const ApplyArgs& a = w.args;
  __syncthreads();
#pragma unroll
  for (int at = threadIdx.x; at < 3 * kThreads; at += kThreads) {
    const int thread = at / 3, first = at % 3 * 2, second = first + 1;  // of six values; flipped, the right pixel leads
    const Place o(w, kRows, thread);
    const int one = flip ? (first + 3) % 6 : first, other = flip ? (second + 3) % 6 : second;
    int64_t to = offset + o.y * a.out_strides.h + 3 * (flip ? a.width - 2 - o.x : o.x) + first;
#pragma unroll 1
    for (int r = 0; r < kRows && o.y + r < a.height; ++r, to += a.out_strides.h)
      store_two(a, to, normalised(a, mix[r * 6 + one][thread], one % 3),
                normalised(a, mix[r * 6 + other][thread], other % 3));
  }
  __syncthreads();
}

// The last pass of every chain, and ((x + sum lambda_i (chain_i - x)) - mean) * scale, for all views of an image.
template <bool k3x3>
__global__ void __launch_bounds__(kThreads, 4) final_kernel(Work w, Writing writing) {
  constexpr int kChainsAtOnce = 8;
  __shared__ Table table;
  __shared__ Chain chains[kChainsAtOnce];
  __shared__ Mix mix;  // each thread uses its own column: registers are scarcer
  const ApplyArgs& a = w.args;
  const int image = blockIdx.y;
  const Place o(w, kRows);
  for (int view = 0; view < w.views; ++view) {
    const int row = view * w.images + image;
    const auto fetch = [&](int chain) {  // and those after it: one wait for all of them
      __syncthreads();
      if (threadIdx.x < min(kChainsAtOnce, a.chains - chain))
        chains[threadIdx.x] = w.chains[row * a.chains + chain + threadIdx.x];
      __syncthreads();
    };
    float clean = 1.f;  // the weight of x itself: 1 - sum lambda_i, so that x is exact where no chain changes it
    for (int chain = 0; chain < a.chains; ++chain) {
      if (chain % kChainsAtOnce == 0) fetch(chain);
      const Chain& c = chains[chain % kChainsAtOnce];
      if (c.passes != 0) clean = c.passes < 0 ? not_a_number() : clean - c.weight;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float x[2][3];
      read_two(x, w, image, min(o.y + r, a.height - 1), o.x);
#pragma unroll
      for (int i = 0; i < 6; ++i) mix[r * 6 + i][threadIdx.x] = clean * x[i / 3][i % 3];
    }
    for (int chain = 0; chain < a.chains; ++chain) {
      if (chain % kChainsAtOnce == 0 && a.chains > kChainsAtOnce) fetch(chain);
      const Chain& c = chains[chain % kChainsAtOnce];
      if (c.passes <= 0) continue;
      const int unit = row * a.chains + chain;
      const bool tabulated = tabulate(table, w, unit, c.last);
      run_pass<k3x3, kRows>(w, o, unit, c.last, table, tabulated, [&](int r, const Two& v) {
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          float& m = mix[r * 6 + i][threadIdx.x];
          m = fmaf(c.weight, v[i / 3][i % 3], m);
        }
      });
    }
    const int64_t write = (view * a.images + w.first_image + image) * a.out_strides.n;
    const bool flip = a.flip && a.flip[w.first_image + image];
    if (writing == Writing::pixels)
      write_pixels(mix, w, write, flip);
    else
      write_planes(mix, w, o, writing, write, flip);
  }
}

Writing writing_for(const ApplyArgs& a) {
  const Strides s = a.out_strides;
  const int64_t bytes = a.out_type == DType::f32 ? 4 : a.out_type == DType::u8 ? 1 : 2;
  if (a.width % 2 || s.n % 2 || s.h % 2 || reinterpret_cast<uintptr_t>(a.out) % (2 * bytes)) return Writing::scalar;
  if (s.w == 1 && s.c % 2 == 0) return Writing::planes;
  return s.w == 3 && s.c == 1 ? Writing::pixels : Writing::scalar;
}

template <bool k3x3>
cudaError_t run(const Work& w, bool first, Writing writing, cudaStream_t stream) {
  const auto blocks = [&](int rows) {  // of one image
    const int64_t threads = static_cast<int64_t>(w.pairs) * ((w.args.height + rows - 1) / rows);
    return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  };
  begin(w, first, stream);
  if (w.args.max_cut > 0) fields(w, stream);
  const unsigned across = blocks(kPassRows);
  const dim3 all(blocks(kRows), w.images), some(across, std::min<unsigned>(w.units(), w.processors * 32 / across + 1));
  for (int number = 0; number + 1 < w.args.depth; ++number) pass_kernel<k3x3><<<some, kThreads, 0, stream>>>(w, number);
  final_kernel<k3x3><<<all, kThreads, 0, stream>>>(w, writing);
  return cudaGetLastError();
}

}  // namespace

size_t workspace_bytes(const ApplyArgs& a) {
  Work w;
  return a.rows == 0 ? 0 : lay_out(w, a, images_that_fit(a, kWorkspace), nullptr);
}

int apply_cuda(const ApplyArgs& a, void* workspace, size_t bytes, void* stream) {
  if (a.rows == 0) return cudaSuccess;
  Work w;
  const int64_t chunk = images_that_fit(a, bytes);
  if (lay_out(w, a, chunk, nullptr) > bytes) return cudaErrorMemoryAllocation;
  int device;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&w.processors, cudaDevAttrMultiProcessorCount, device))
    return error;
  const auto run_chunk = a.filter == 3 ? run<true> : run<false>;
  for (int64_t first = 0; first < a.images; first += chunk) {
    lay_out(w, a, std::min(chunk, a.images - first), workspace);
    w.first_image = first;
    if (const cudaError_t error = run_chunk(w, first == 0, writing_for(a), static_cast<cudaStream_t>(stream)))
      return error;
  }
  return cudaSuccess;
}

}  // namespace prime
