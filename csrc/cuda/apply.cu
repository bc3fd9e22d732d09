// The kernels that go over pixels, the mix, and what is launched for a batch. Launch shapes follow from the arguments
// alone; what each slot does is read from the plan on the device.
#include <algorithm>

#include "../core/check.h"
#include "passes.cuh"

namespace prime {
namespace {

// Pass `number` of the chains that have more to come. Every other pass goes backwards: what the pass before has written
// last is still in the L2.
template <bool k3x3>
__global__ void __launch_bounds__(kThreads, 8) pass_kernel(Work w, int number) {
  __shared__ __align__(16) Table table;
  after_last_kernel();
  const int count = w.counts[kPasses + number], *to_do = w.to_do + number * w.units();
  for (int i = blockIdx.y; i < count; i += gridDim.y) {
    const int unit = to_do[number % 2 ? count - 1 - i : i];
    const Pass pass = w.passes[unit * w.args.depth + number];
    load_table(table, pass);
    const Place o(w, thread_here());
    uint2* out = pass.target + static_cast<unsigned>(o.y * w.pitch + o.x);
    run_pass<k3x3>(w, o, unit, pass, table, [&](int r, const Two& v) {
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
#pragma unroll
  for (int i = 0; i < 6; ++i) {  // 256/255 is 1 + 1/255
    const float v256 = fmaf((i < 3 ? left : right).c[i % 3], weight, -weight);
    v[i / 3][i % 3] = fmaf(v256, 1.f / 255.f, v256);
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
  // Value i of row 0, and how far it is to that of the next row.
  __device__ __forceinline__ const float* first(int i, int thread, int& step) const {
    step = (i < 4 ? 4 : 2) * kThreads;
    return i < 4 ? reinterpret_cast<const float*>(head) + 4 * thread + i
                 : reinterpret_cast<const float*>(tail) + 2 * thread + i - 4;
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

// Writes this thread's pixels into planes.
template <DType kType, bool kFlip>
__device__ __forceinline__ void write_planes(const Mix& mix, const Work& w, Place o, int64_t offset) {
  const ApplyArgs& a = w.args;
  const Strides s = a.out_strides;
  const Normal normal(a);
  using Value = typename Stored<kType>::Value;
  Value* to[3];
#pragma unroll
  for (int c = 0; c < 3; ++c)
    to[c] = static_cast<Value*>(a.out) + offset + o.y * s.h + c * s.c + (kFlip ? a.width - 2 - o.x : o.x);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= a.height - o.y) break;
    Two v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const float left = normal(v[0][c], c), right = normal(v[1][c], c);
      store_two<kType>(to[c], kFlip ? right : left, kFlip ? left : right);
      to[c] += s.h;
    }
  }
}

// Writes this thread's pixels one by one.
template <DType kType>
__device__ __forceinline__ void write_values(const Mix& mix, const Work& w, Place o, int64_t offset, bool flip) {
  const ApplyArgs& a = w.args;
  const Strides s = a.out_strides;
  const Normal normal(a);
  using Value = typename Stored<kType>::Value;
#pragma unroll 1
  for (int r = 0; r < kRows && r < a.height - o.y; ++r) {
    Two v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      const int x = o.x + i / 3, c = i % 3;
      if (x < a.width)
        static_cast<Value*>(a.out)[offset + (o.y + r) * s.h + c * s.c + (flip ? a.width - 1 - x : x) * s.w] =
            stored<kType>(normal(v[i / 3][c], c));
    }
  }
}

// Writes the block's interleaved pixels: two neighbouring values a thread, neighbouring threads side by side.
template <DType kType>
__device__ __forceinline__ void write_pixels(const Mix& mix, const Work& w, int64_t offset, bool flip) {
  const ApplyArgs& a = w.args;
  using Value = typename Stored<kType>::Value;
  __syncthreads();
#pragma unroll 1
  for (int at = threadIdx.x; at < 3 * kThreads; at += kThreads) {
    const int thread = at / 3, first = at % 3 * 2, second = first + 1;  // of six values; flipped, the right pixel leads
    const Place o(w, thread);
    const int one = flip ? (first + 3) % 6 : first, other = flip ? (second + 3) % 6 : second;
    int step_one, step_other;
    const float *from_one = mix.first(one, thread, step_one), *from_other = mix.first(other, thread, step_other);
    const float scale_one = a.scale[one % 3], scale_other = a.scale[other % 3];
    const float add_one = -a.mean[one % 3] * scale_one, add_other = -a.mean[other % 3] * scale_other;
    Value* to =
        static_cast<Value*>(a.out) + offset + o.y * a.out_strides.h + (3 * (flip ? a.width - 2 - o.x : o.x) + first);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= a.height - o.y) break;
      store_two<kType>(to, fmaf(*from_one, scale_one, add_one), fmaf(*from_other, scale_other, add_other));
      from_one += step_one, from_other += step_other, to += a.out_strides.h;
    }
  }
  __syncthreads();
}

template <DType kType>
__device__ __forceinline__ void write(const Mix& mix, const Work& w, Place o, Writing writing, int64_t offset,
                                      bool flip) {
  if (writing == Writing::planes)
    flip ? write_planes<kType, true>(mix, w, o, offset) : write_planes<kType, false>(mix, w, o, offset);
  else if (writing == Writing::pixels)
    write_pixels<kType>(mix, w, offset, flip);
  else
    write_values<kType>(mix, w, o, offset, flip);
}

// The last pass of every chain, and ((x + sum lambda_i (chain_i - x)) - mean) * scale, for one view of an image.
template <bool k3x3>
__device__ __forceinline__ void mix_view(const Work& w, int image, int view, Table& table, Mix& mix, Writing writing) {
  const ApplyArgs& a = w.args;
  const int row = view * w.images + image;
  const Chain* chains = w.chains + row * a.chains;
  float clean = 1.f;  // the weight of x itself: 1 - sum lambda_i, so that x is exact where no chain changes it
#pragma unroll 1
  for (int chain = 0; chain < a.chains; ++chain) {
    const int passes = chains[chain].passes;
    const float weight = chains[chain].weight;
    clean -= passes < 0 ? not_a_number() : passes ? weight : 0.f;
  }
  const int thread = thread_here();
  const Place first(w, thread);
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
    const Chain c = chains[chain];
    if (c.passes <= 0) continue;
    const int thread = thread_here(), unit = row * a.chains + chain;
    const Place o(w, thread);
    load_table(table, c.last);
    run_pass<k3x3>(w, o, unit, c.last, table, [&](int r, const Two& v) {
      Two sum;
      mix.get(sum, r, thread);
#pragma unroll
      for (int i = 0; i < 6; ++i) sum[i / 3][i % 3] = fmaf(c.weight, v[i / 3][i % 3], sum[i / 3][i % 3]);
      mix.set(r, thread, sum);
    });
  }
  const int64_t offset = (view * a.images + w.first_image + image) * a.out_strides.n;
  const bool flip = a.flip && a.flip[w.first_image + image];
  const Place o(w, thread_here());
  switch (a.out_type) {
    case DType::u8: write<DType::u8>(mix, w, o, writing, offset, flip); break;
    case DType::f16: write<DType::f16>(mix, w, o, writing, offset, flip); break;
    case DType::bf16: write<DType::bf16>(mix, w, o, writing, offset, flip); break;
    default: write<DType::f32>(mix, w, o, writing, offset, flip);
  }
}

// Tells the host what of a chunk's float images is no pixel: one thread a chunk, mostly of nothing.
__device__ __forceinline__ void tell_host(const Work& w) {
  const BadPixels found = *w.bad;
  BadPixels* host = w.args.bad;
  if (found.values == 0 || !host) return;
  atomicMax(&host->any_nan, found.any_nan);
  atomicMax(&host->below, found.below), atomicMax(&host->above, found.above);
  __threadfence_system();
  atomicAdd(&host->values, found.values);  // the last: the host looks at nothing else while this is 0
}

template <bool k3x3>
__global__ void __launch_bounds__(kThreads, 8) final_kernel(Work w, Writing writing) {
  __shared__ __align__(16) Table table;
  __shared__ Mix mix;
  after_last_kernel();
  if (w.round == 0 && w.args.in_type != DType::u8 && blockIdx.x + blockIdx.y + threadIdx.x == 0) tell_host(w);
  const int split = w.in_first_round(), end = w.round == 0 ? split : w.images;
  for (int image = (w.round == 0 ? 0 : split) + blockIdx.y; image < end; image += gridDim.y)
    for (int view = 0; view < w.views; ++view) mix_view<k3x3>(w, image, view, table, mix, writing);
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
  const int64_t threads = static_cast<int64_t>(w.pairs) * ((w.args.height + kRows - 1) / kRows);
  const unsigned blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);  // of one image
  if (const cudaError_t error = begin(w, first, stream)) return error;
  for (int round = 0; round < w.rounds; ++round) {
    const Work here = w.in_round(round);
    // A second round is mostly empty: few blocks.
    const auto at_most = [&](int count, int of_a_processor) {
      return dim3(blocks, std::min<unsigned>(count, w.processors * of_a_processor / blocks + 1));
    };
    const int few = 2;
    if (w.args.max_cut > 0)
      if (const cudaError_t error = fields(here, stream)) return error;
    for (int number = 0; number + 1 < w.args.depth; ++number)
      if (const cudaError_t error =
              launch(pass_kernel<k3x3>, at_most(w.units(), round == 0 ? 64 : few), kThreads, stream, here, number))
        return error;
    const dim3 all = round == 0 ? dim3(blocks, w.images) : at_most(w.images, few);
    if (const cudaError_t error = launch(final_kernel<k3x3>, all, kThreads, stream, here, writing)) return error;
  }
  return cudaSuccess;
}

}  // namespace

size_t workspace_bytes(const ApplyArgs& a) {
  check(a);
  return a.rows == 0 ? 0 : chunk_that_fits(a, kWorkspace).bytes;
}

int apply_cuda(const ApplyArgs& a, void* workspace, size_t bytes, void* stream) {
  check(a);
  if (a.rows == 0) return cudaSuccess;
  check_address("workspace", workspace, 256);
  Work w;
  const Chunk chunk = chunk_that_fits(a, bytes);
  if (chunk.bytes > bytes) return cudaErrorMemoryAllocation;
  int device;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&w.processors, cudaDevAttrMultiProcessorCount, device))
    return error;
  const auto run_chunk = a.filter == 3 ? run<true> : run<false>;
  for (int64_t first = 0; first < a.images; first += chunk.images) {
    lay_out(w, a, std::min(chunk.images, a.images - first), chunk.rounds, workspace);
    w.first_image = first;
    if (const cudaError_t error = run_chunk(w, first == 0, writing_for(a), static_cast<cudaStream_t>(stream)))
      return error;
  }
  return cudaSuccess;
}

}  // namespace prime
