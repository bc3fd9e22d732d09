// The last stage of a chunk, once a round: the last passes of all chains, the mix, and the output.
#include "input.cuh"
#include "output.cuh"
#include "passes.cuh"

namespace prime {
namespace {

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

// The last pass of every chain, and ((x + sum lambda_i (chain_i - x)) - mean) * scale, for one view of an image.
template <bool k3x3>
__device__ __forceinline__ void mix_view(const Work& w, int image, int view, Table& table, Mix& mix, Writing writing) {
  const ApplyArgs& a = w.args;
  const int row = view * w.images + image;
  const Chain* chains = w.chains + row * a.shape.chains;
  float clean = 1.f;  // the weight of x itself: 1 - sum lambda_i, so that x is exact where no chain changes it
#pragma unroll 1
  for (int chain = 0; chain < a.shape.chains; ++chain) {
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
  for (int chain = 0; chain < a.shape.chains; ++chain) {
    const Chain c = chains[chain];
    if (c.passes <= 0) continue;
    const int thread = thread_here(), chain_index = row * a.shape.chains + chain;
    const Place o(w, thread);
    load_table(table, c.last);
    run_pass<k3x3>(w, o, chain_index, c.last, table, [&](int r, const Two& v) {
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

// Block (b, i): kThreads patches of 2 columns x kRows rows of images i, i + gridDim.y, ..., in all views.
// Reads chains, steps, the input or its packed form, and what last passes point to (see pass_kernel).
// Writes the output; one thread of the first round adds Work::bad to ApplyArgs::bad.
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

}  // namespace

cudaError_t mix(const Work& w, dim3 blocks, cudaStream_t stream) {
  return launch(w.args.shape.filter == 3 ? final_kernel<true> : final_kernel<false>, blocks, kThreads, stream, w,
                writing_for(w.args));
}

}  // namespace prime
