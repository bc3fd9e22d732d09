// Memory by which kernels tell the host of images that are no pixels, without a wait.
#include <map>
#include <mutex>
#include <new>

#include "../arguments.h"
#include "cuda.h"
#include "device.cuh"

namespace prime {
namespace {

std::mutex lock;
std::map<int, BadPixels*>& devices() {
  static auto* all = new std::map<int, BadPixels*>;  // never destroyed: a kernel may still add to them at exit
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

int bad_pixels_of_device(BadPixels** shared, int* device) {
  if (const cudaError_t error = cudaGetDevice(device)) return error;
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = devices().find(*device);
  if (found != devices().end()) return *shared = found->second, cudaSuccess;
  if (const int error = new_bad_pixels(shared)) return error;
  devices()[*device] = *shared;
  return cudaSuccess;
}

int wait_for_bad_pixels(int device, BadPixels& found, int& where) {
  found = {};
  const std::lock_guard<std::mutex> guard(lock);
  if (devices().empty()) return cudaSuccess;  // there may be no GPU
  int before;
  if (const cudaError_t error = cudaGetDevice(&before)) return error;
  int error = cudaSuccess;
  for (const auto& [number, shared] : devices()) {
    if (error || found.values || (device != -1 && device != number)) continue;
    error = cudaSetDevice(number);
    if (!error) error = cudaDeviceSynchronize();
    if (!error) found = take(shared), where = number;
  }
  const int restored = cudaSetDevice(before);
  return error ? error : restored;
}

}  // namespace prime
