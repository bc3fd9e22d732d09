// How the DALI plugin reaches the kernels: as functions of the package's own libraries, whose addresses Python hands
// over. So the plugin is one small file, is compiled without a CUDA compiler, and never differs from the package.
#pragma once
#include <cstddef>

#include "../core/image.h"

namespace prime {

struct CoreFunctions {
  size_t size = sizeof(CoreFunctions) ^ sizeof(ApplyArgs) << 16 ^ sizeof(SampleArgs) << 32;  // of what both sides share
  void (*sample_cpu)(const SampleArgs&);
  BadPixels (*apply_cpu)(const ApplyArgs&, int threads);
  // The CUDA back end's (csrc/cuda/cuda.h), or null.
  size_t (*workspace_bytes)(const ApplyArgs&);
  int (*apply_cuda)(const ApplyArgs&, void* workspace, size_t bytes, void* stream);
  int (*new_bad_pixels)(BadPixels**);
  void (*free_bad_pixels)(BadPixels*);
  const char* (*cuda_error)(int code);
};

}  // namespace prime
