#include "../core/plan.h"
#include "cuda.h"

namespace prime {
namespace {

struct Views {
  int64_t at[kMaxViews];
};

__global__ void sample_kernel(SampleArgs a, Views views) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= a.view_count * a.images) return;
  const int chains = static_cast<int>(a.law.chains), depth = static_cast<int>(a.law.depth);
  const int64_t i = r % a.images;
  draw_row(a.law, a.seed, a.index[i], a.epoch[i * a.epoch_step], views.at[r / a.images],
           Row<int32_t>{a.plan + r * row_words(chains, depth), chains, depth});
}

}  // namespace

int sample_cuda(const SampleArgs& args, void* stream) {
  const int64_t rows = args.view_count * args.images;
  if (rows == 0) return cudaSuccess;
  Views views{};
  for (int v = 0; v < args.view_count; ++v) views.at[v] = args.views[v];
  constexpr int threads = 64;
  sample_kernel<<<static_cast<unsigned>((rows + threads - 1) / threads), threads, 0,
                  static_cast<cudaStream_t>(stream)>>>(args, views);
  return cudaGetLastError();
}

const char* cuda_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace prime
