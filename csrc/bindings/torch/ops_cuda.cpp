// CUDA implementations of the operators declared in ops.cpp, on torch's current stream and from its allocator.
#include <torch/csrc/stable/accelerator.h>

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

// Throws what is in Python a ValueError if an earlier call has met images that are no pixels.
void require_pixels(const BadPixels& bad, int device) {
  if (bad.values) throw std::invalid_argument(earlier_pixel_error("images", bad, device));
}

// Waits for `device`, or where that is -1 for all that have been used.
void check_pixels(int64_t device) {
  BadPixels bad;
  int where;
  require_success(prime_wait_for_bad_pixels(kTorch, static_cast<int>(device), &bad, &where));
  require_pixels(bad, where);
}

Tensor sample(const Tensor& index, const Tensor& epoch, int64_t height, int64_t width, int64_t seed,
              std::vector<int64_t> views, std::vector<double> distributions) {
  const Context context(index);
  Sample call(index, epoch, height, width, seed, views, distributions);
  require_success(prime_sample_cuda(&call.args, context.stream));
  return call.plan;
}

Tensor apply(const Tensor& images, const Tensor& plan, std::optional<Tensor> flip, std::vector<int64_t> plan_shape,
             ScalarType out_dtype, std::vector<double> mean, std::vector<double> scale, bool channels_last) {
  const Context context(images);
  Apply call(images, plan, flip, plan_shape, out_dtype, mean, scale, channels_last);
  int device;
  require_success(prime_bad_pixels_of_device(kTorch, &call.args.bad, &device));
  BadPixels bad;
  prime_take_bad_pixels(call.args.bad, &bad);
  require_pixels(bad, device);
  if (call.args.rows == 0) return call.out;
  size_t bytes;
  require_success(prime_workspace_bytes(&call.args, &bytes));
  const Tensor workspace = new_tensor({static_cast<int64_t>(bytes)}, {1}, ScalarType::Byte, images);
  require_success(prime_apply_cuda(&call.args, workspace.data_ptr(), bytes, context.stream));
  return call.out;
}

Tensor reserve(const Tensor& counter, int64_t images) {
  const Context context(counter);
  Reserve call(counter, images);
  require_success(prime_reserve_cuda(call.counter, images, call.first, context.stream));
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
