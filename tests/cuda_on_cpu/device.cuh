// csrc/cuda/device.cuh for the CPU: the same results, from the definitions of the instructions.
#pragma once
#include "cuda_fp16.h"

namespace prime {

template <class Kernel, class... Arguments>
[[nodiscard]] cudaError_t launch(Kernel kernel, dim3 grid, int threads, cudaStream_t, const Arguments&... arguments) {
  return emulated_call([&] { emulated::launch([=] { kernel(arguments...); }, grid, threads); });
}
inline void after_last_kernel() {}

inline float root(float x) { return sqrtf(x); }
inline float reciprocal(float x) { return 1.f / x; }
inline float inverse_root(float x) { return 1.f / sqrtf(x); }
inline float binary_logarithm(float x) { return log2f(x); }

inline int thread_here() { return threadIdx.x; }
inline float clipped_fma(float a, float b, float c) { return __saturatef(fmaf(a, b, c)); }

inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t select) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const int from = select >> 4 * i & 0xf, byte = bytes >> 8 * (from & 7) & 0xff;
    out |= (from < 8 ? byte : byte & 0x80 ? 0xffu : 0u) << 8 * i;
  }
  return out;
}

inline void copy_async(uint4* to, const uint4* from) { *to = *from; }
inline void wait_for_copies() {}

inline __half half_of(uint64_t word, int i) {
  const uint16_t bits = static_cast<uint16_t>(word >> 16 * i);
  __half h;
  memcpy(&h, &bits, sizeof h);
  return h;
}

// Lane 4 g + t holds a[g or g + 8][2 t, 2 t + 1, and those + 8] and b[2 t, 2 t + 1, and those + 8][g], and gets
// sum[g or g + 8][2 t, 2 t + 1].
inline void multiply_add(float (&sum)[4], uint4 a, uint32_t b0, uint32_t b1) {
  const uint64_t* lanes = emulated::show({a.x, a.y, a.z, a.w, b0, b1});
  const int lane = threadIdx.x % 32;
  float left[2][16], right[2][16];
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 16; ++k) {
      const uint64_t* const row = lanes + (lane / 4 * 4 + k % 8 / 2) * 8;
      const uint64_t* const column = lanes + ((lane % 4 * 2 + i) * 4 + k % 8 / 2) * 8;
      left[i][k] = __half2float(half_of(row[i + k / 8 * 2], k % 2));
      right[i][k] = __half2float(half_of(column[4 + k / 8], k % 2));
    }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) sum[i] += left[i / 2][k] * right[i % 2][k];
}

}  // namespace prime
