// The last stage of a chunk, once a round: the last passes of all chains, the mix, waves, and the output.
#include "../core/check.h"
#include "output.cuh"
#include "passes.cuh"
#include "wave.cuh"
#include "workspace.cuh"

namespace prime {
namespace {

struct MixParams {
  PassInputs inputs;
  InputImages input;    // of which floats are read again here
  const void* packed;   // [images, height, pitch] pixels, of which bytes are
  const Chain* chains;  // [views, images, chains]
  OutputImages out;
  bool second;           // the second round
  const int* admitted;   // images of the first round; null if there is one
  const BadPixels* bad;  // of this chunk; null: nothing to tell the host
  BadPixels* host;       // what it is added to
  int first_channel;     // of the image, of those that run together
};

// Two pixels of a packed byte image times `weight`, exactly if that is 1.
template <int kC>
__device__ __forceinline__ void read_bytes(Two<kC>& v, const Pixel<kC>* from, float weight) {
  const Pair<kC> pair = load_pair<kC>(from);
  const Raw<kC> left = decode<kC>(left_of(pair)), right = decode<kC>(right_of(pair));
#pragma unroll
  for (int i = 0; i < 2 * kC; ++i) {  // 256/255 is 1 + 1/255
    const float v256 = fmaf((i < kC ? left : right).c[i % kC], weight, -weight);
    v[i / kC][i % kC] = fmaf(v256, 1.f / 255.f, v256);
  }
}

// Two pixels of another input, which come from where they are: the packed ones are rounded.
template <bool kAny, int kC>
__device__ __forceinline__ void read_input(Two<kC>& v, const InputImages& in, int width, int image, int y, int x,
                                           float weight) {
  const Strides s = in.strides;
  const int64_t at = image * s.n + y * s.h + x * s.w, next = x + 1 < width ? s.w : 0;
#pragma unroll
  for (int i = 0; i < 2 * kC; ++i) v[i / kC][i % kC] = weight * load<kAny>(in, at + i / kC * next + i % kC * s.c);
}

// The last pass of every chain, and (x + sum lambda_i (chain_i - x), with waves, - mean) * scale, for one view of an
// image.
template <int kC, bool kAny, bool kWaves>
__device__ __forceinline__ void mix_view(const MixParams& p, int image, int view, Table<kC>& table, Mix<kC>& mix) {
  const ImageShape& shape = p.inputs.shape;
  const PlanView& plan = p.inputs.plan;
  const int row = view * plan.images + image;
  const Chain* chains = p.chains + row * plan.shape.chains;
  float clean = 1.f;  // the weight of x itself: 1 - sum lambda_i, so that x is exact where no chain changes it
#pragma unroll 1
  for (int chain = 0; chain < plan.shape.chains; ++chain) {
    const int passes = chains[chain].passes;
    const float weight = chains[chain].weight;
    clean -= passes < 0 ? not_a_number() : passes ? weight : 0.f;
  }
  const int thread = thread_here();
  const Place first(shape, thread);
  Two<kC> x;
  if (p.input.type == DType::u8) {
    const Source<kC> source(static_cast<const Pixel<kC>*>(p.packed) + image * shape.pixels, shape);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      read_bytes<kC>(x, source.at(min(first.y + r, shape.height - 1), first.x), clean);
      mix.set(r, thread, x);
    }
  } else {
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      read_input<kAny, kC>(x, p.input, shape.width, image, min(first.y + r, shape.height - 1), first.x, clean);
      mix.set(r, thread, x);
    }
  }
#pragma unroll 1
  for (int chain = 0; chain < plan.shape.chains; ++chain) {
    const Chain c = chains[chain];
    if (c.passes <= 0) continue;
    const int thread = thread_here(), chain_index = row * plan.shape.chains + chain;
    const Place o(shape, thread);
    load_table(table, c.last);
    run_pass<kAny>(p.inputs, o, chain_index, c.last, table, [&](int r, const Two<kC>& v) {
      Two<kC> sum;
      mix.get(sum, r, thread);
#pragma unroll
      for (int i = 0; i < 2 * kC; ++i) sum[i / kC][i % kC] = fmaf(c.weight, v[i / kC][i % kC], sum[i / kC][i % kC]);
      mix.set(r, thread, sum);
    });
  }
  if constexpr (kWaves)
    if (plan.shape.waves) add_waves(mix, p.inputs, row, p.first_channel);
  const OutputImages& out = p.out;
  const int64_t offset = (view * out.batch + image) * out.strides.n;
  const bool flip = out.flip && out.flip[image];
  const Place o(shape, thread_here());
  if constexpr (kAny)
    if (out.type == DType::u16) return write<DType::u16>(mix, out, shape, o, offset, flip);
  switch (out.type) {
    case DType::u8: write<DType::u8>(mix, out, shape, o, offset, flip); break;
    case DType::f16: write<DType::f16>(mix, out, shape, o, offset, flip); break;
    case DType::bf16: write<DType::bf16>(mix, out, shape, o, offset, flip); break;
    default: write<DType::f32>(mix, out, shape, o, offset, flip);
  }
}

// Tells the host what of a chunk's float images is no pixel: one thread a chunk, mostly of nothing.
__device__ __forceinline__ void tell_host(const BadPixels& bad, BadPixels* host) {
  const BadPixels found = bad;
  if (found.values == 0) return;
  atomicMax(&host->any_nan, found.any_nan);
  atomicMax(&host->below, found.below), atomicMax(&host->above, found.above);
  __threadfence_system();
  atomicAdd(&host->values, found.values);  // the last: the host looks at nothing else while this is 0
}

// Block (b, i): kThreads patches of 2 columns x kRows rows of images i, i + gridDim.y, ..., in all views.
// Reads chains, steps, the input or its packed form, and what last passes point to (see pass_kernel).
// Writes the output; one thread of the first round adds `bad` to what the host sees.
// kAny: filters of any size, and uint16. kWaves: plans with waves, too.
template <int kC, bool kAny, bool kWaves>
__global__ void __launch_bounds__(kThreads, 8) final_kernel(const __grid_constant__ MixParams p) {
  __shared__ __align__(16) Table<kC> table;
  __shared__ Mix<kC> mix;
  after_last_kernel();
  if (p.bad && blockIdx.x + blockIdx.y + threadIdx.x == 0) tell_host(*p.bad, p.host);
  const int images = p.inputs.plan.images, split = in_first_round(p.admitted, images), end = p.second ? images : split;
  for (int image = (p.second ? split : 0) + blockIdx.y; image < end; image += gridDim.y)
    for (int view = 0; view < p.inputs.plan.views; ++view) mix_view<kC, kAny, kWaves>(p, image, view, table, mix);
}

OutputImages output_of(const Workspace& w) {
  const ApplyArgs& a = w.args;
  char* first = static_cast<char*>(a.out) + w.first_image * a.out_strides.n * item_size(a.out_type);
  const Access writing = access_to(first, item_size(a.out_type), a.out_strides, a.channels, a.width);
  OutputImages out{first, a.out_type, writing, a.out_strides, a.images, a.flip ? a.flip + w.first_image : nullptr, {}};
  for (int c = 0; c < a.channels; ++c) out.channel[c] = {a.mean[c], a.scale[c]};
  return out;
}

}  // namespace

cudaError_t mix(const Workspace& w, int round, dim3 blocks, cudaStream_t stream) {
  const bool tell = round == 0 && w.args.bad && !w.plan.bytes;
  const MixParams params{w.pass_inputs(), w.input,        w.packed,   w.chains,
                         output_of(w),    round == 1,     w.admitted, tell ? w.bad : nullptr,
                         w.args.bad,      w.first_channel};
  return with_channels(w, [&](auto channels) {
    auto kernel = final_kernel<channels, true, true>;
    if constexpr (channels == 3)
      if (w.plan.shape.filter == 3 && w.args.in_type != DType::u16 && w.args.out_type != DType::u16)
        kernel = w.plan.shape.waves ? final_kernel<channels, false, true> : final_kernel<channels, false, false>;
    return launch(kernel, blocks, kThreads, stream, params);
  });
}

}  // namespace prime
