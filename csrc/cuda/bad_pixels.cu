// Memory by which kernels tell the host of images that are no pixels, without a wait.
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "cuda.h"
#include "device.cuh"

namespace prime {
namespace {

std::mutex lock;
// By binding and device.
std::map<std::pair<int, int>, BadPixels*>& devices() {
  static auto* all = new std::map<std::pair<int, int>, BadPixels*>;  // kept: a kernel may still add to them at exit
  return *all;
}

}  // namespace

int new_bad_pixels(BadPixels** made) {
  // A capture of the usual mode forbids allocations by this thread, lest they order the stream; this one cannot.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (const cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode)) return error;
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, sizeof(BadPixels), cudaHostAllocPortable | cudaHostAllocMapped);
  const cudaError_t restored = cudaThreadExchangeStreamCaptureMode(&mode);
  if (error != cudaSuccess) return error;
  *made = new (memory) BadPixels{};
  return restored;
}

void free_bad_pixels(BadPixels* made) {
  if (made) cudaFreeHost(made);  // in a destructor: what fails here has failed before, and was told then
}

BadPixels take_bad_pixels(BadPixels* shared) {
  BadPixels found{};
  found.values = __atomic_load_n(&shared->values, __ATOMIC_ACQUIRE);
  if (found.values == 0) return found;
  found.any_nan = __atomic_exchange_n(&shared->any_nan, 0, __ATOMIC_RELAXED);
  found.below = __atomic_exchange_n(&shared->below, 0, __ATOMIC_RELAXED);
  found.above = __atomic_exchange_n(&shared->above, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&shared->values, 0, __ATOMIC_RELEASE);
  return found;
}

int bad_pixels_of_device(int binding, BadPixels** shared, int* device) {
  if (const cudaError_t error = cudaGetDevice(device)) return error;
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = devices().find({binding, *device});
  if (found != devices().end()) return *shared = found->second, cudaSuccess;
  if (const int error = new_bad_pixels(shared)) return error;
  devices()[{binding, *device}] = *shared;
  return cudaSuccess;
}

int wait_for_bad_pixels(int binding, int device, BadPixels& found, int& where) {
  found = {};
  const std::lock_guard<std::mutex> guard(lock);
  if (devices().empty()) return cudaSuccess;  // there may be no GPU
  int before;
  if (const cudaError_t error = cudaGetDevice(&before)) return error;
  int error = cudaSuccess;
  for (const auto& [key, shared] : devices()) {
    const auto [owner, number] = key;
    if (error || found.values || owner != binding || (device != -1 && device != number)) continue;
    error = cudaSetDevice(number);
    if (!error) error = cudaDeviceSynchronize();
    if (!error) found = take_bad_pixels(shared), where = number;
  }
  const int restored = cudaSetDevice(before);
  return error ? error : restored;
}

}  // namespace prime
