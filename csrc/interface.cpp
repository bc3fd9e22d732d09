// The C interface over the two back ends. Compiled for any processor of the architecture (setup.py), because it is
// loaded before it is known whether the back ends can run.
#include "interface.h"

#include <new>
#include <stdexcept>
#include <string>

#include "core/check.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"

namespace prime {
namespace {

thread_local std::string message;

int failed(Status status, const char* what) noexcept {
  try {
    message = what;
  } catch (const std::bad_alloc&) {
    message.clear();
  }
  return status;
}

template <class Call>
int status_of(Call call) noexcept {
  try {
    call();
    return kSuccess;
  } catch (const std::invalid_argument& error) {
    return failed(kInvalidArgument, error.what());
  } catch (const std::bad_alloc& error) {
    return failed(kNoMemory, error.what());
  } catch (const std::exception& error) {
    return failed(kFailure, error.what());
  } catch (...) {
    return failed(kFailure, "prime_dali: unknown error");
  }
}

void require_cuda(int error) {
  if (error) throw std::runtime_error(std::string("prime_dali: CUDA error: ") + cuda_error(error));
}

}  // namespace

uint64_t prime_interface() noexcept { return interface_number(); }

const char* prime_compiler() noexcept { return __VERSION__; }

#ifdef PRIME_CUDA_VERSION
const char* prime_cuda_version() noexcept { return PRIME_CUDA_VERSION; }

const char* prime_architectures() noexcept { return PRIME_CUDA_ARCHITECTURES; }
#else
const char* prime_cuda_version() noexcept { return nullptr; }

const char* prime_architectures() noexcept { return nullptr; }
#endif

const char* prime_distributions_field(int number) noexcept {
  return number >= 0 && number < kDistributionFields ? kDistributionNames[number] : nullptr;
}

const char* prime_plan_shape_field(int number) noexcept {
  return number >= 0 && number < kPlanShapeFields ? kPlanShapeNames[number] : nullptr;
}

const char* prime_missing_instructions() noexcept {
  static const std::string missing = missing_instructions();
  return missing.c_str();
}

int prime_instructions(const char** name) noexcept {
  return status_of([&] { *name = instructions(); });
}

int prime_use_instructions(const char* name) noexcept {
  return status_of([&] { use_instructions(name); });
}

const char* prime_message() noexcept { return message.c_str(); }

int prime_sample_cpu(const SampleArgs* args) noexcept {
  return status_of([&] { sample_cpu(*args); });
}

int prime_check_rows(const int32_t* plan, int64_t rows, const PlanShape* shape) noexcept {
  return status_of([&] {
    check_plan_shape(shape->chains, shape->depth, shape->filter, shape->max_cut, shape->max_band, shape->waves);
    if (rows > 0) check_address("plan", plan, alignof(int32_t));
    check_rows(plan, rows, *shape);
  });
}

int prime_apply_cpu(const ApplyArgs* args, int threads, BadPixels* bad) noexcept {
  return status_of([&] { *bad = apply_cpu(*args, threads); });
}

int prime_sample_cuda(const SampleArgs* args, void* stream) noexcept {
  return status_of([&] { require_cuda(sample_cuda(*args, stream)); });
}

int prime_reserve_cuda(int64_t* counter, int64_t images, int64_t* first, void* stream) noexcept {
  return status_of([&] { require_cuda(reserve_cuda(counter, images, first, stream)); });
}

int prime_workspace_bytes(const ApplyArgs* args, size_t* bytes) noexcept {
  return status_of([&] { *bytes = workspace_bytes(*args); });
}

int prime_apply_cuda(const ApplyArgs* args, void* workspace, size_t bytes, void* stream) noexcept {
  return status_of([&] { require_cuda(apply_cuda(*args, workspace, bytes, stream)); });
}

int prime_new_bad_pixels(BadPixels** made) noexcept {
  return status_of([&] { require_cuda(new_bad_pixels(made)); });
}

void prime_free_bad_pixels(BadPixels* made) noexcept { free_bad_pixels(made); }

void prime_take_bad_pixels(BadPixels* shared, BadPixels* found) noexcept { *found = take_bad_pixels(shared); }

int prime_bad_pixels_of_device(int binding, BadPixels** shared, int* device) noexcept {
  return status_of([&] { require_cuda(bad_pixels_of_device(binding, shared, device)); });
}

int prime_wait_for_bad_pixels(int binding, int device, BadPixels* found, int* where) noexcept {
  return status_of([&] { require_cuda(wait_for_bad_pixels(binding, device, *found, *where)); });
}

}  // namespace prime
