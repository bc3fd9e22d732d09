// What is launched for a batch: up to four channels at a time, chunks of images, each by three stages. Launch shapes
// follow from the arguments alone; what each slot does is read from the plan on the device.
#include <algorithm>

#include "../core/check.h"
#include "workspace.cuh"

namespace prime {
namespace {

cudaError_t run(const Workspace& w, int processors, cudaStream_t stream) {
  const int64_t threads = static_cast<int64_t>(w.shape.pairs) * ((w.shape.height + kRows - 1) / kRows);
  const unsigned blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);  // of one image
  if (const cudaError_t error = prepare(w, stream)) return error;
  for (int round = 0; round < w.rounds; ++round) {
    // A second round is mostly empty: few blocks.
    const auto at_most = [&](int count, int of_a_processor) {
      return dim3(blocks, std::min<unsigned>(count, processors * of_a_processor / blocks + 1));
    };
    const int few = 2;
    if (w.plan.shape.max_cut > 0)
      if (const cudaError_t error = fields(w, round, processors, stream)) return error;
    const dim3 some = at_most(w.plan.chain_count(), round == 0 ? 64 : few);
    for (int number = 0; number + 1 < w.plan.shape.depth; ++number)
      if (const cudaError_t error = pass(w, round, number, some, stream)) return error;
    const dim3 all = round == 0 ? dim3(blocks, w.plan.images) : at_most(w.plan.images, few);
    if (const cudaError_t error = mix(w, round, all, stream)) return error;
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
  const ChunkSize chunk = chunk_that_fits(a, bytes);
  if (chunk.bytes > bytes) return cudaErrorMemoryAllocation;
  int device, processors;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device))
    return error;
  for (int channel = 0; channel < a.channels; channel += kTogether)
    for (int64_t first = 0; first < a.images; first += chunk.images) {
      const int64_t images = std::min(chunk.images, a.images - first);
      const Workspace w = lay_out(a, channel, first, images, chunk.rounds, workspace);
      if (const cudaError_t error = run(w, processors, static_cast<cudaStream_t>(stream))) return error;
    }
  return cudaSuccess;
}

}  // namespace prime
