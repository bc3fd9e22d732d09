// CUDA implementations of the operators declared in ops.cpp, on torch's current stream and from its allocator.
#include <torch/csrc/stable/accelerator.h>

#include "../cuda/cuda.h"
#include "ops.h"

namespace prime {
namespace {

struct Context {
  torch::stable::accelerator::DeviceGuard guard;
  void* stream;
  explicit Context(const Tensor& tensor) : guard(tensor.get_device_index()), stream(nullptr) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  }
};

void check(int code) { STD_TORCH_CHECK(code == 0, "prime_dali: CUDA error: ", cuda_error(code)); }

// Throws what is in Python a ValueError if an earlier call has met images that are no pixels.
void require_pixels(const BadPixels& bad, int device) {
  if (bad.values) throw std::invalid_argument(earlier_pixel_error("images", bad, device));
}

// Waits for `device`, or where that is -1 for all that have been used.
void check_pixels(int64_t device) {
  BadPixels bad;
  int where;
  check(wait_for_bad_pixels(static_cast<int>(device), bad, where));
  require_pixels(bad, where);
}

Tensor sample(const Tensor& index, const Tensor& epoch, int64_t height, int64_t width, int64_t seed,
              std::vector<int64_t> views, std::vector<double> law) {
  const Context context(index);
  Sample call(index, epoch, height, width, seed, views, law);
  check(sample_cuda(call.args, context.stream));
  return call.plan;
}

Tensor apply(const Tensor& images, const Tensor& plan, std::optional<Tensor> flip, std::vector<int64_t> shape,
             ScalarType out_dtype, std::vector<double> mean, std::vector<double> scale, bool channels_last) {
  const Context context(images);
  Apply call(images, plan, flip, shape, out_dtype, mean, scale, channels_last);
  int device;
  check(bad_pixels_of_device(&call.args.bad, &device));
  require_pixels(take(call.args.bad), device);
  if (call.args.rows == 0) return call.out;
  const int64_t bytes = static_cast<int64_t>(workspace_bytes(call.args));
  const Tensor workspace = new_tensor({bytes}, {1}, ScalarType::Byte, images);
  check(apply_cuda(call.args, workspace.data_ptr(), bytes, context.stream));
  return call.out;
}

Tensor reserve(const Tensor& counter, int64_t images) {
  const Context context(counter);
  Reserve call(counter, images);
  check(reserve_cuda(call.counter, images, call.first, context.stream));
  return call.out;
}

}  // namespace
}  // namespace prime

STABLE_TORCH_LIBRARY_IMPL(prime_dali, CUDA, m) {
  m.impl("sample", TORCH_BOX(&prime::sample));
  m.impl("reserve", TORCH_BOX(&prime::reserve));
  m.impl("apply", TORCH_BOX(&prime::apply));
}

STABLE_TORCH_LIBRARY_IMPL(prime_dali, CompositeExplicitAutograd, m) {  // it takes no tensor that would name a device
  m.impl("check_pixels", TORCH_BOX(&prime::check_pixels));
}
