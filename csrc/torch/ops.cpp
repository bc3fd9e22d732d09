// Schemas of the torch operators and their CPU implementations.
#include <torch/csrc/stable/c/shim.h>

#include "../cpu/cpu.h"
#include "ops.h"

namespace prime {
namespace {

Tensor sample(const Tensor& index, const Tensor& epoch, int64_t seed, std::vector<int64_t> views,
              std::vector<double> law) {
  Sample call(index, epoch, seed, views, law);
  sample_cpu(call.args);
  return call.plan;
}

Tensor apply(const Tensor& images, const Tensor& plan, int64_t chains, int64_t depth, int64_t filter, int64_t max_cut,
             ScalarType out_dtype, std::vector<double> mean, std::vector<double> scale, bool channels_last) {
  Apply call(images, plan, chains, depth, filter, max_cut, out_dtype, mean, scale, channels_last);
  uint32_t threads;
  TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&threads));
  apply_cpu(call.args, static_cast<int>(threads));
  return call.out;
}

}  // namespace
}  // namespace prime

STABLE_TORCH_LIBRARY(prime_dali, m) {
  m.def("sample(Tensor index, Tensor epoch, int seed, int[] views, float[] law) -> Tensor");
  m.def(
      "apply(Tensor images, Tensor plan, int chains, int depth, int filter, int max_cut, ScalarType out_dtype, "
      "float[] mean, float[] scale, bool channels_last) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(prime_dali, CPU, m) {
  m.impl("sample", TORCH_BOX(&prime::sample));
  m.impl("apply", TORCH_BOX(&prime::apply));
}
