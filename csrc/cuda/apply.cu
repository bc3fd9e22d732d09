// What is launched for a batch: chunks of images, each by three stages. Launch shapes follow from the arguments alone;
// what each slot does is read from the plan on the device.
#include <algorithm>

#include "../core/check.h"
#include "workspace.cuh"

namespace prime {
namespace {

cudaError_t run(const Work& w, bool first, cudaStream_t stream) {
  const int64_t threads = static_cast<int64_t>(w.pairs) * ((w.args.height + kRows - 1) / kRows);
  const unsigned blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);  // of one image
  if (const cudaError_t error = prepare(w, first, stream)) return error;
  for (int round = 0; round < w.rounds; ++round) {
    const Work here = w.in_round(round);
    // A second round is mostly empty: few blocks.
    const auto at_most = [&](int count, int of_a_processor) {
      return dim3(blocks, std::min<unsigned>(count, w.processors * of_a_processor / blocks + 1));
    };
    const int few = 2;
    if (w.args.shape.max_cut > 0)
      if (const cudaError_t error = fields(here, stream)) return error;
    const dim3 some = at_most(w.chain_count(), round == 0 ? 64 : few);
    for (int number = 0; number + 1 < w.args.shape.depth; ++number)
      if (const cudaError_t error = pass(here, number, some, stream)) return error;
    if (const cudaError_t error = mix(here, round == 0 ? dim3(blocks, w.images) : at_most(w.images, few), stream))
      return error;
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
  for (int64_t first = 0; first < a.images; first += chunk.images) {
    lay_out(w, a, std::min(chunk.images, a.images - first), chunk.rounds, workspace);
    w.first_image = first;
    if (const cudaError_t error = run(w, first == 0, static_cast<cudaStream_t>(stream))) return error;
  }
  return cudaSuccess;
}

}  // namespace prime
