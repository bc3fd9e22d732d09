// Draws plans on the GPU, by the arithmetic of core/plan.h.
#include "../core/check.h"
#include "cuda.h"
#include "device.cuh"

namespace prime {
namespace {

struct SampleParams {
  SampleArgs args;  // its views are in host memory
  int64_t rows, views[kMaxViews];
};

// Block (r, part): one part (a slot, or the weights) of 64 rows, a thread each.
// Reads index, epoch.
// Writes the plan.
__global__ void sample_kernel(const __grid_constant__ SampleParams p) {
  after_last_kernel();
  const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= p.rows) return;
  const int64_t view = p.views[r / p.args.images];
  draw_part(p.args.distributions, p.args.keys(r, view), view, static_cast<int>(blockIdx.y), p.args.row(r));
}

// One thread.
// Reads and advances the counter of images drawn so far.
// Writes what it was.
__global__ void reserve_kernel(int64_t* counter, int64_t images, int64_t* first) {
  after_last_kernel();
  using Word = unsigned long long;  // the 64 bits that atomicAdd knows
  *first = static_cast<int64_t>(atomicAdd(reinterpret_cast<Word*>(counter), static_cast<Word>(images)));
}

}  // namespace

int sample_cuda(const SampleArgs& args, void* stream) {
  check(args);
  const int64_t rows = args.view_count * args.images;
  if (rows == 0) return cudaSuccess;
  SampleParams params{args, rows, {}};
  for (int v = 0; v < args.view_count; ++v) params.views[v] = args.views[v];
  constexpr int threads = 64;
  const Row<int32_t> row = args.row(0);
  const dim3 blocks(static_cast<unsigned>((rows + threads - 1) / threads), row_parts(row.chains, row.depth));
  return launch(sample_kernel, blocks, threads, static_cast<cudaStream_t>(stream), params);
}

int reserve_cuda(int64_t* counter, int64_t images, int64_t* first, void* stream) {
  return launch(reserve_kernel, dim3(1), 1, static_cast<cudaStream_t>(stream), counter, images, first);
}

const char* cuda_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace prime
