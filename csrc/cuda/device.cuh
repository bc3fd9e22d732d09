// What has no name in CUDA C++: instructions of the GPU, with the form for Turing where later ones have better.
// tests/cuda_on_cpu/device.cuh is the same for the CPU.
#pragma once
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

namespace prime {

// Whether a kernel's blocks may begin as soon as all blocks of the stream's last kernel have begun (programmatic
// dependent launch): if the GPU can, and code for such GPUs was compiled, for code for older ones would not wait.
inline cudaError_t begins_early(bool& early) {
  constexpr int newest = std::max({__CUDA_ARCH_LIST__});  // setup.py sorts them: also of the PTX for newer GPUs
  early = false;
  if (newest < 900) return cudaSuccess;
  int device, major;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) return error;
  early = major >= 9;
  return cudaSuccess;
}

// Launches a kernel, which calls after_last_kernel() before anything else: its blocks may begin early, and the time
// between two kernels is saved. The result is that of this launch: cudaGetLastError() would take errors that others
// have still to see.
template <class... Parameters, class... Arguments>
[[nodiscard]] cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
                                 const Arguments&... arguments) {
  bool begins;
  if (const cudaError_t error = begins_early(begins)) return error;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = dim3(threads), config.stream = stream;
  config.attrs = &early, config.numAttrs = begins;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

__device__ __forceinline__ void after_last_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until all that the last kernel wrote can be read
#endif
}

// Square root of a number that is not tiny, to 1e-7.
__device__ __forceinline__ float root(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal(float x) {  // to 1e-7
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float inverse_root(float x) {  // to 1e-7
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float binary_logarithm(float x) {  // to 2e-7 of 1
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// threadIdx.x, read anew: in a loop, what follows from it is not made before the loop and kept in registers.
__device__ __forceinline__ int thread_here() {
  int i;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
  return i;
}

// a b + c, clipped to [0, 1]: one instruction, where __saturatef() of a sum costs two.
__device__ __forceinline__ float clipped_fma(float a, float b, float c) {
  float y;
  asm("fma.rn.ftz.sat.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
  return y;
}

// Bytes of a (0 to 3) and b (4 to 7) that `select` names from the last one on; 8 more: a byte's sign, eight times.
__device__ __forceinline__ uint32_t permuted(uint32_t a, uint32_t b, uint32_t select) {
  uint32_t y;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(select));
  return y;
}

// Copies 16 bytes into shared memory, and goes on: they are there, for this thread, after wait_for_copies().
__device__ __forceinline__ void copy_async(uint4* to, const uint4* from) {
#if __CUDA_ARCH__ >= 800
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
  *to = *from;
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// sum += a b for 16 x 16 by 16 x 8 numbers, each lane holding its share as mma's m16n8k16 wants it.
__device__ __forceinline__ void multiply_add(float (&sum)[4], uint4 a, uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#else  // Turing has the same product at half the depth
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.x), "r"(a.y), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.z), "r"(a.w), "r"(b1));
#endif
}

}  // namespace prime
