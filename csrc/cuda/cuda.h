// The CUDA back end: plain pointers, a stream, a workspace from the caller's allocator. Nothing here waits for the GPU,
// allocates, or keeps state, so every call can be captured in a CUDA graph.
#pragma once
#include <cstddef>

#include "../core/image.h"

namespace prime {

// Each returns 0 or a cudaError_t, and throws std::invalid_argument for arguments that core/check.h refuses; all
// pointers but SampleArgs::views are device memory.
int sample_cuda(const SampleArgs& args, void* stream);
int reserve_cuda(int64_t* counter, int64_t images, int64_t* first, void* stream);  // first = counter; counter += images
int apply_cuda(const ApplyArgs& args, void* workspace, size_t workspace_bytes, void* stream);

// What apply_cuda wants: enough for the whole batch, or for as many images as kWorkspace (work.cuh) can hold, but one
// at least.
size_t workspace_bytes(const ApplyArgs& args);

const char* cuda_error(int code);

}  // namespace prime
