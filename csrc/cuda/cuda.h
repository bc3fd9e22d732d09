// The CUDA back end: plain pointers, a stream, a workspace from the caller's allocator. sample_cuda() and apply_cuda()
// neither wait for the GPU nor allocate nor keep state, so every call can be captured in a CUDA graph.
#pragma once
#include <cstddef>

#include "../core/image.h"

namespace prime {

// Each returns 0 or a cudaError_t, and throws std::invalid_argument for arguments that core/check.h refuses; all
// pointers but SampleArgs::views and ApplyArgs::bad are device memory.
int sample_cuda(const SampleArgs& args, void* stream);
int reserve_cuda(int64_t* counter, int64_t images, int64_t* first, void* stream);  // first = counter; counter += images
int apply_cuda(const ApplyArgs& args, void* workspace, size_t workspace_bytes, void* stream);

// What apply_cuda wants: enough for the whole batch, or for as many images as kWorkspace (workspace.cuh) can hold, but
// one at least.
size_t workspace_bytes(const ApplyArgs& args);

// Memory for ApplyArgs::bad, all zeros, which host and GPU see by one address. A kernel adds to it what it meets, also
// when a graph is replayed, and nobody waits. May be called while a stream is captured.
int new_bad_pixels(BadPixels** made);
void free_bad_pixels(BadPixels* made);  // once no kernel can add to it any more

// What kernels have found by now, as far as the host can see without waiting; and the memory starts afresh. A kernel
// that adds to it at this very moment may be told of again.
BadPixels take_bad_pixels(BadPixels* shared);

// One for each binding (csrc/interface.h) and device, the current one at the call, made when it is first asked for and
// kept until the process ends. `device` is its number.
int bad_pixels_of_device(int binding, BadPixels** shared, int* device);

// Waits for the devices where a binding has one, or for `device` alone if that is not -1, and tells what the first of
// them that has met any has met.
int wait_for_bad_pixels(int binding, int device, BadPixels& found, int& where);

const char* cuda_error(int code);

}  // namespace prime
