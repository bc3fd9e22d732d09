// The C interface of the compiled core, libprime_dali.so, and all that it exports. The bindings and the DALI plugin
// (csrc/bindings) link it. No exception crosses it: what can fail returns a Status, and prime_message() says why;
// csrc/bindings/status.h makes an exception of that again. The CUDA functions are there in every build; in one without
// CUDA they fail and say so.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "core/image.h"

#define PRIME_EXPORT extern "C" __attribute__((visibility("default")))

namespace prime {

enum Status : int { kSuccess = 0, kInvalidArgument = 1, kNoMemory = 2, kFailure = 3 };

// A number of this interface, which differs wherever one side could misunderstand the other: raise the first number
// with every change of a function. Compiled into the core, and into the DALI plugin, which is built apart from it.
constexpr uint64_t interface_number() {
  uint64_t number = 1;
  const auto add = [&](uint64_t part) { number = (number ^ part) * 0x100000001b3u; };
  for (const size_t size : {sizeof(SampleArgs), sizeof(ApplyArgs), sizeof(BadPixels)}) add(size);
  for (const char* name : kDistributionNames)
    for (; *name; ++name) add(*name);
  for (const char* name : kPlanShapeNames)
    for (; *name; ++name) add(*name);
  return number;
}

// Who calls. Each binding tells of the pixels that its own callers have passed.
enum Binding : int { kTorch = 0, kArrays = 1 };

// ---- what was built ----

PRIME_EXPORT uint64_t prime_interface() noexcept;         // interface_number() of the core
PRIME_EXPORT const char* prime_compiler() noexcept;       // of the C++ code
PRIME_EXPORT const char* prime_cuda_version() noexcept;   // of the toolkit; null: built without CUDA
PRIME_EXPORT const char* prime_architectures() noexcept;  // compute capabilities, with spaces; null: without CUDA
// Names of the fields of Distributions and of PlanShape, from 0 on in their order; null: there is no such field.
PRIME_EXPORT const char* prime_distributions_field(int number) noexcept;
PRIME_EXPORT const char* prime_plan_shape_field(int number) noexcept;
// Instruction sets that the core was compiled for and this processor lacks, with commas. Unless that is empty, no
// function below may be called.
PRIME_EXPORT const char* prime_missing_instructions() noexcept;
// Which compilation of the CPU back end works on pixels (csrc/cpu/cpu.h): its name; choose it by name.
PRIME_EXPORT int prime_instructions(const char** name) noexcept;
PRIME_EXPORT int prime_use_instructions(const char* name) noexcept;

// ---- calls; all pointers without a comment are host memory ----

// Why the last call of this thread that failed did.
PRIME_EXPORT const char* prime_message() noexcept;

PRIME_EXPORT int prime_sample_cpu(const SampleArgs* args) noexcept;
// Fails unless a draw could have made every row.
PRIME_EXPORT int prime_check_rows(const int32_t* plan, int64_t rows, const PlanShape* shape) noexcept;
// `bad`: what of the input is no pixel; if there is any, the output is not to be used.
PRIME_EXPORT int prime_apply_cpu(const ApplyArgs* args, int threads, BadPixels* bad) noexcept;

// As csrc/cuda/cuda.h has them, which says which memory is of the device.
PRIME_EXPORT int prime_sample_cuda(const SampleArgs* args, void* stream) noexcept;
PRIME_EXPORT int prime_reserve_cuda(int64_t* counter, int64_t images, int64_t* first, void* stream) noexcept;
PRIME_EXPORT int prime_workspace_bytes(const ApplyArgs* args, size_t* bytes) noexcept;
PRIME_EXPORT int prime_apply_cuda(const ApplyArgs* args, void* workspace, size_t bytes, void* stream) noexcept;
PRIME_EXPORT int prime_new_bad_pixels(BadPixels** made) noexcept;
PRIME_EXPORT void prime_free_bad_pixels(BadPixels* made) noexcept;
PRIME_EXPORT void prime_take_bad_pixels(BadPixels* shared, BadPixels* found) noexcept;
PRIME_EXPORT int prime_bad_pixels_of_device(int binding, BadPixels** shared, int* device) noexcept;
PRIME_EXPORT int prime_wait_for_bad_pixels(int binding, int device, BadPixels* found, int* where) noexcept;

}  // namespace prime
