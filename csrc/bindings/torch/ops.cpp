// Schemas of the torch operators and their CPU implementations.
#include <torch/csrc/stable/c/shim.h>

#include "ops.h"

namespace prime {
namespace {

Tensor sample(const Tensor& index, const Tensor& epoch, int64_t height, int64_t width, int64_t seed,
              std::vector<int64_t> views, std::vector<double> distributions) {
  Sample call(index, epoch, height, width, seed, views, distributions);
  require_success(prime_sample_cpu(&call.args));
  return call.plan;
}

Tensor apply(const Tensor& images, const Tensor& plan, std::optional<Tensor> flip, std::vector<int64_t> plan_shape,
             ScalarType out_dtype, std::vector<double> mean, std::vector<double> scale, bool channels_last) {
  Apply call(images, plan, flip, plan_shape, out_dtype, mean, scale, channels_last);
  uint32_t threads;
  TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&threads));
  BadPixels bad;
  require_success(prime_apply_cpu(&call.args, static_cast<int>(threads), &bad));
  if (bad.values) throw std::invalid_argument(pixel_error("images", bad));  // in Python a ValueError
  return call.out;
}

Tensor reserve(const Tensor& counter, int64_t images) {
  Reserve call(counter, images);
  *call.first = __atomic_fetch_add(call.counter, images, __ATOMIC_RELAXED);
  return call.out;
}

}  // namespace
}  // namespace prime

STABLE_TORCH_LIBRARY(prime_dali, m) {
  // Height and width are symbolic, and the other numbers do not depend on them: one compiled graph serves every size.
  m.def(
      "sample(Tensor index, Tensor epoch, SymInt height, SymInt width, int seed, int[] views, float[] distributions) "
      "-> Tensor");
  m.def("reserve(Tensor(a!) counter, SymInt images) -> Tensor");
  m.def(
      "apply(Tensor images, Tensor plan, Tensor? flip, int[] plan_shape, ScalarType out_dtype, float[] mean, "
      "float[] scale, bool channels_last) -> Tensor");
  m.def("check_pixels(int device) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(prime_dali, CPU, m) {
  m.impl("sample", TORCH_BOX(&prime::sample));
  m.impl("reserve", TORCH_BOX(&prime::reserve));
  m.impl("apply", TORCH_BOX(&prime::apply));
}
