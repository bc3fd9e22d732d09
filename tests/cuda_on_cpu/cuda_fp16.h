// Enough of CUDA to run csrc/cuda on a CPU, one block after another: types, intrinsics, and threads that take turns.
// Slow, and only for tests; what depends on timing, memory order or divergence within a warp is not found here.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __host__
#define __global__ static
#define __forceinline__ inline
#define __noinline__
#define __constant__ const
#define __shared__ static  // blocks run one after another
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uchar2 {
  unsigned char x, y;
};
struct ushort2 {
  unsigned short x, y;
};
struct __half {
  _Float16 value;
};
struct alignas(4) __half2 {
  __half x, y;
};
inline __half __float2half_rn(float x) { return {static_cast<_Float16>(x)}; }
inline float __half2float(__half h) { return static_cast<float>(h.value); }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }

using std::max;
using std::min;
inline float __saturatef(float x) { return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f; }
inline float __fmaf_rd(float a, float b, float c) {
  const long double exact = static_cast<long double>(a) * b + c;
  const float sum = static_cast<float>(exact);
  return sum > exact ? nextafterf(sum, -INFINITY) : sum;
}
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t(a) * b >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<unsigned>(bytes >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
  return out;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T atomicAdd(T* p, T value) {
  return (*p += value) - value;
}
inline unsigned atomicMax(unsigned* p, unsigned value) {
  const unsigned before = *p;
  return *p = max(before, value), before;
}
inline void __threadfence_system() {}

using cudaStream_t = void*;
using cudaError_t = int;
constexpr cudaError_t cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorLaunchFailure = 719;
constexpr int cudaDevAttrMultiProcessorCount = 16;
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;

// For the tests: the current device, and how many calls of CUDA until one that fails, 0: none will.
extern "C" {
__attribute__((visibility("default"))) inline int emulated_device = 0, emulated_calls_until_failure = 0;
}
inline cudaError_t emulated_call() {
  return emulated_calls_until_failure > 0 && --emulated_calls_until_failure == 0 ? cudaErrorLaunchFailure : cudaSuccess;
}
// A call that does `what`, unless it fails.
template <class What>
cudaError_t emulated_call(What what) {
  const cudaError_t error = emulated_call();
  if (error == cudaSuccess) what();
  return error;
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "as the test wants" : "none";
}
inline cudaError_t cudaGetDevice(int* device) {
  return emulated_call([=] { *device = emulated_device; });
}
inline cudaError_t cudaSetDevice(int device) {
  return emulated_call([=] { emulated_device = device; });
}
inline cudaError_t cudaDeviceSynchronize() { return emulated_call(); }
inline cudaError_t cudaDeviceGetAttribute(int* value, int, int) {
  return emulated_call([=] { *value = 2; });
}
inline cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  return emulated_call([=] { memset(p, value, bytes); });
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return emulated_call(); }
inline cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  return emulated_call([=] { *p = malloc(bytes); });
}
inline cudaError_t cudaFreeHost(void* p) {
  return emulated_call([=] { free(p); });
}

namespace emulated {

struct Meeting {  // of the threads of a block, or of a warp
  int expected = 0, arrived = 0, round = 0;
};

struct Thread {  // of every block: it begins once, and then waits for the next block's turn
  ucontext_t beginning;
  jmp_buf place;  // unlike swapcontext(), jumps call no system
  std::vector<char> stack;
  bool done;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Meeting> warps;
  Meeting all;
  std::vector<std::vector<uint64_t>> lanes;  // of each warp: what its lanes show each other
  jmp_buf scheduler;
  std::function<void()> kernel;
  unsigned current;
};
inline Block block;

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

inline void yield() {
  if (!_setjmp(block.threads[block.current].place)) _longjmp(block.scheduler, 1);
}

inline void meet(Meeting& m) {
  const int round = m.round;
  if (++m.arrived >= m.expected) {
    m.arrived = 0, ++m.round;
    return;
  }
  while (m.round == round) yield();
}

inline void leave(Meeting& m) {  // who is gone is not waited for
  if (--m.expected > 0 && m.arrived >= m.expected) m.arrived = 0, ++m.round;
}

inline void body() {
  for (;;) {
    block.kernel();
    const unsigned me = block.current;
    block.threads[me].done = true;
    leave(block.all);
    leave(block.warps[me / 32]);
    yield();
  }
}

inline void resume(Thread& t) {
  if (_setjmp(block.scheduler)) return;
  if (!t.stack.empty()) _longjmp(t.place, 1);
  t.stack.resize(96 << 10);
  getcontext(&t.beginning);
  t.beginning.uc_stack.ss_sp = t.stack.data();
  t.beginning.uc_stack.ss_size = t.stack.size();
  t.beginning.uc_link = nullptr;
  makecontext(&t.beginning, body, 0);
  setcontext(&t.beginning);
}

inline void run_block(unsigned threads) {
  if (block.threads.size() < threads) block.threads.resize(threads);
  block.warps.assign((threads + 31) / 32, Meeting{});
  block.all = Meeting{static_cast<int>(threads)};
  block.lanes.assign(block.warps.size(), std::vector<uint64_t>(32 * 8));
  for (unsigned i = 0; i < threads; ++i) {
    block.threads[i].done = false;
    ++block.warps[i / 32].expected;
  }
  for (bool alive = true; alive;) {
    alive = false;
    for (unsigned i = 0; i < threads; ++i) {
      if (block.threads[i].done) continue;
      alive = true;
      block.current = i, threadIdx = dim3(i);
      resume(block.threads[i]);
    }
  }
}

inline void launch(std::function<void()> kernel, dim3 grid, unsigned threads) {
  block.kernel = std::move(kernel);
  gridDim = grid, blockDim = dim3(threads);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        run_block(threads);
      }
}

// Every lane of a warp shows some words, and then sees those of all 32: [lane][8].
inline const uint64_t* show(std::initializer_list<uint64_t> words) {
  std::vector<uint64_t>& lanes = block.lanes[block.current / 32];
  meet(block.warps[block.current / 32]);  // the words of the last time have been read
  std::copy(words.begin(), words.end(), lanes.begin() + block.current % 32 * 8);
  meet(block.warps[block.current / 32]);
  return lanes.data();
}

}  // namespace emulated

using emulated::blockDim;
using emulated::blockIdx;
using emulated::gridDim;
using emulated::threadIdx;

inline void __syncthreads() { emulated::meet(emulated::block.all); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  memcpy(&value, emulated::show({word}) + 8 * lane, sizeof value);
  return value;
}
inline void __syncwarp() { emulated::meet(emulated::block.warps[emulated::block.current / 32]); }
