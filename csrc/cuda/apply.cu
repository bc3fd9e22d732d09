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
  const int count = w.counts[1 + number], *to_do = w.to_do + number * w.units();
  for (int i = blockIdx.y; i < count; i += gridDim.y) {
    const int unit = to_do[i];
    const Pass pass = w.passes[unit * w.args.depth + number];
    const bool tabulated = tabulate(table, w, unit, pass);
    const Place o(w, kPassRows, thread_here());
    uint2* out = w.image[number % 2] + unit * w.pixels + static_cast<unsigned>(o.y * w.pitch + o.x);
    run_pass<k3x3, kPassRows>(w, o, unit, pass, table, tabulated, [&](int r, const Two& v) {
      const uint2 left = encode(v[0]), right = encode(v[1]);
      if (r < w.args.height - o.y) *reinterpret_cast<uint4*>(out) = {left.x, left.y, right.x, right.y};
      out += w.pitch;
    });
  }
}

// How the output is written: pairs of neighbouring values where addresses allow it.
enum class Writing { scalar, planes, pixels };

// Two pixels of a packed byte image times `weight`, exactly if that is 1.
__device__ __forceinline__ void read_bytes(Two& v, const uint2* from, float weight) {
  const uint4 two = __ldg(reinterpret_cast<const uint4*>(from));
  const Raw left = decode({two.x, two.y}), right = decode({two.z, two.w});
  const float rest = weight * (1.f / 255.f);
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    const float level = (i < 3 ? left : right).c[i % 3] - 1.f;  // over 256, and 256/255 is 1 + 1/255
    v[i / 3][i % 3] = fmaf(level, rest, level * weight);
  }
}

// Two pixels of another input, which come from where they are: the packed ones are rounded.
__device__ __forceinline__ void read_input(Two& v, const Work& w, int image, int y, int x, float weight) {
  const ApplyArgs& a = w.args;
  const Strides s = a.in_strides;
  const int64_t at = (w.first_image + image) * s.n + y * s.h + x * s.w, next = x + 1 < a.width ? s.w : 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) v[i / 3][i % 3] = weight * load(a, at + i / 3 * next + i % 3 * s.c);
}

// The sums of a block's pixels, a thread's in its own column: registers are scarcer.
struct Mix {
  float4 head[kRows][kThreads];  // four of a row's six values,
  float2 tail[kRows][kThreads];  // and two
  __device__ __forceinline__ void set(int r, int thread, const Two& v) {
    head[r][thread] = {v[0][0], v[0][1], v[0][2], v[1][0]}, tail[r][thread] = {v[1][1], v[1][2]};
  }
  __device__ __forceinline__ void get(Two& v, int r, int thread) const {
    const float4 four = head[r][thread];
    const float2 two = tail[r][thread];
    v[0][0] = four.x, v[0][1] = four.y, v[0][2] = four.z, v[1][0] = four.w, v[1][1] = two.x, v[1][2] = two.y;
  }
  __device__ __forceinline__ float at(int r, int i, int thread) const {
    return i < 4 ? reinterpret_cast<const float*>(head[r])[4 * thread + i]
                 : reinterpret_cast<const float*>(tail[r])[2 * thread + i - 4];
  }
};

struct Normal {  // (x - mean) * scale
  float scale[3], offset[3];
  __device__ __forceinline__ explicit Normal(const ApplyArgs& a) {
#pragma unroll
    for (int c = 0; c < 3; ++c) scale[c] = a.scale[c], offset[c] = -a.mean[c] * a.scale[c];
  }
  __device__ __forceinline__ float operator()(float x, int c) const { return fmaf(x, scale[c], offset[c]); }
};

// Writes this thread's pixels into planes, or one by one.
template <DType kType>
__device__ __forceinline__ void write_planes(const Mix& mix, const Work& w, Place o, Writing writing, int64_t offset,
                                             bool flip) {
  const ApplyArgs& a = w.args;
  const Strides s = a.out_strides;
  const Normal normal(a);
  offset += o.y * s.h + (writing == Writing::planes ? flip ? a.width - 2 - o.x : o.x : 0);
#pragma unroll 1
  for (int r = 0; r < kRows && o.y + r < a.height; ++r, offset += s.h) {
    Two v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int i = 0; i < 6; ++i) v[i / 3][i % 3] = normal(v[i / 3][i % 3], i % 3);
    if (writing == Writing::planes) {
      int64_t at = offset;
#pragma unroll
      for (int c = 0; c < 3; ++c, at += s.c)
        store_two<kType>(a.out, at, flip ? v[1][c] : v[0][c], flip ? v[0][c] : v[1][c]);
    } else {
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const int x = o.x + i / 3;
        if (x < a.width)
          store<kType>(a.out, offset + i % 3 * s.c + (flip ? a.width - 1 - x : x) * s.w, v[i / 3][i % 3]);
      }
    }
  }
}

// Writes the block's interleaved pixels: two neighbouring values a thread, neighbouring threads side by side.
template <DType kType>
__device__ __forceinline__ void write_pixels(const Mix& mix, const Work& w, int64_t offset, bool flip) {
  const ApplyArgs& a = w.args;
  __syncthreads();
#pragma unroll 1
  for (int at = threadIdx.x; at < 3 * kThreads; at += kThreads) {
    const int thread = at / 3, first = at % 3 * 2, second = first + 1;  // of six values; flipped, the right pixel leads
    const Place o(w, kRows, thread);
    const int one = flip ? (first + 3) % 6 : first, other = flip ? (second + 3) % 6 : second;
    const float scale[2] = {a.scale[one % 3], a.scale[other % 3]};
    const float add[2] = {-a.mean[one % 3] * scale[0], -a.mean[other % 3] * scale[1]};
    int64_t to = offset + o.y * a.out_strides.h + 3 * (flip ? a.width - 2 - o.x : o.x) + first;
#pragma unroll 1
    for (int r = 0; r < kRows && o.y + r < a.height; ++r, to += a.out_strides.h)
      store_two<kType>(a.out, to, fmaf(mix.at(r, one, thread), scale[0], add[0]),
                       fmaf(mix.at(r, other, thread), scale[1], add[1]));
  }
  __syncthreads();
}

template <DType kType>
__device__ __forceinline__ void write(const Mix& mix, const Work& w, Place o, Writing writing, int64_t offset,
                                      bool flip) {
  if (writing == Writing::pixels)
    write_pixels<kType>(mix, w, offset, flip);
  else
    write_planes<kType>(mix, w, o, writing, offset, flip);
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
  for (int view = 0; view < w.views; ++view) {
    const int row = view * w.images + image;
    const auto fetch = [&](int chain) {  // and those after it: one wait for all of them
      __syncthreads();
      if (threadIdx.x < min(kChainsAtOnce, a.chains - chain))
        chains[threadIdx.x] = w.chains[row * a.chains + chain + threadIdx.x];
      __syncthreads();
    };
    float clean = 1.f;  // the weight of x itself: 1 - sum lambda_i, so that x is exact where no chain changes it
#pragma unroll 1
    for (int chain = 0; chain < a.chains; ++chain) {
      if (chain % kChainsAtOnce == 0) fetch(chain);
      const Chain& c = chains[chain % kChainsAtOnce];
      if (c.passes != 0) clean = c.passes < 0 ? not_a_number() : clean - c.weight;
    }
    const int thread = thread_here();
    const Place first(w, kRows, thread);
    Two x;
    if (a.in_type == DType::u8) {
      const Source source{w.packed + image * w.pixels, a.height, a.width, w.pitch};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        read_bytes(x, source.at(min(first.y + r, a.height - 1), first.x), clean);
        mix.set(r, thread, x);
      }
    } else {
#pragma unroll 1
      for (int r = 0; r < kRows; ++r) {
        read_input(x, w, image, min(first.y + r, a.height - 1), first.x, clean);
        mix.set(r, thread, x);
      }
    }
#pragma unroll 1
    for (int chain = 0; chain < a.chains; ++chain) {
      if (chain % kChainsAtOnce == 0 && a.chains > kChainsAtOnce) fetch(chain);
      const Chain& c = chains[chain % kChainsAtOnce];
      if (c.passes <= 0) continue;
      const int thread = thread_here();
      const int unit = row * a.chains + chain;
      const bool tabulated = tabulate(table, w, unit, c.last);
      run_pass<k3x3, kRows>(w, Place(w, kRows, thread), unit, c.last, table, tabulated, [&](int r, const Two& v) {
        Two sum;
        mix.get(sum, r, thread);
#pragma unroll
        for (int i = 0; i < 6; ++i) sum[i / 3][i % 3] = fmaf(c.weight, v[i / 3][i % 3], sum[i / 3][i % 3]);
        mix.set(r, thread, sum);
      });
    }
    const int64_t offset = (view * a.images + w.first_image + image) * a.out_strides.n;
    const bool flip = a.flip && a.flip[w.first_image + image];
    const Place o(w, kRows, thread_here());
    switch (a.out_type) {
      case DType::u8: write<DType::u8>(mix, w, o, writing, offset, flip); break;
      case DType::f16: write<DType::f16>(mix, w, o, writing, offset, flip); break;
      case DType::bf16: write<DType::bf16>(mix, w, o, writing, offset, flip); break;
      default: write<DType::f32>(mix, w, o, writing, offset, flip);
    }
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
