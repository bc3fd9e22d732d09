// Between torch tensors and the core, for both devices. LibTorch's stable ABI only: one build serves every torch
// >= 2.10.
#pragma once
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../arguments.h"
#include "../status.h"

namespace prime {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// What tensors are; numbers are checked by core/check.h. prime_dali/torch_ops.py has checked everything with messages
// for people; these catch direct callers of the ops.
#define PRIME_REQUIRE(condition, what) STD_TORCH_CHECK(condition, "prime_dali: expected ", what)

inline Tensor new_tensor(std::vector<int64_t> sizes, std::vector<int64_t> strides, ScalarType dtype,
                         const Tensor& like) {
  int32_t type, device_type, device_index;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &device_index));
  type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  AtenTensorHandle handle;
  const auto error = aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), type,
                                              device_type, device_index, &handle);
  // The stable ABI says only that it failed; with sizes that were checked there is one reason.
  STD_TORCH_CHECK(error == AOTI_TORCH_SUCCESS, "prime_dali: out of memory");
  return Tensor(handle);
}

inline DType dtype_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return DType::u8;
    case ScalarType::Half: return DType::f16;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::UInt16: return DType::u16;
    default:
      PRIME_REQUIRE(type == ScalarType::Float, "dtype uint8, uint16, float16, bfloat16 or float32");
      return DType::f32;
  }
}

struct Sample {
  SampleArgs args{};
  Tensor plan;

  // distributions: the numbers of that struct, of which height and width are given apart.
  Sample(const Tensor& index, const Tensor& epoch, int64_t height, int64_t width, int64_t seed,
         const std::vector<int64_t>& views, const std::vector<double>& distributions) {
    PRIME_REQUIRE(index.dim() == 1 && index.scalar_type() == ScalarType::Long && index.is_contiguous(),
                  "index: contiguous int64 [N]");
    PRIME_REQUIRE(epoch.scalar_type() == ScalarType::Long && epoch.is_contiguous() &&
                      (epoch.dim() == 0 || (epoch.dim() == 1 && epoch.size(0) == index.size(0))),
                  "epoch: int64 [] or contiguous [N]");
    PRIME_REQUIRE(epoch.get_device_index() == index.get_device_index() && epoch.is_cpu() == index.is_cpu(),
                  "index and epoch on one device");
    read_distributions(distributions, args.distributions);
    check_size(height, width);
    args.distributions.height = static_cast<double>(height), args.distributions.width = static_cast<double>(width);
    check_range<size_t>("views", views.size(), 1, kMaxViews);
    args.index = static_cast<const int64_t*>(index.data_ptr());
    args.epoch = static_cast<const int64_t*>(epoch.data_ptr());
    args.epoch_step = epoch.dim();
    args.images = index.size(0);
    args.seed = static_cast<uint64_t>(seed);
    args.views = views.data();
    args.view_count = static_cast<int>(views.size());
    const Row<int32_t> row = args.row(0);
    const int64_t words = row_words(row.chains, row.depth, row.waves);
    plan = new_tensor({args.view_count * args.images, words}, {words, 1}, ScalarType::Int, index);
    args.plan = static_cast<int32_t*>(plan.data_ptr());
  }
};

// The next numbers of a counter: out is the first of them. The implementations add in one atomic step, so that threads
// and streams that share a counter get each number once.
struct Reserve {
  int64_t *counter, *first;
  Tensor out;

  Reserve(const Tensor& numbers, int64_t images) {
    PRIME_REQUIRE(numbers.dim() == 0 && numbers.scalar_type() == ScalarType::Long, "counter: int64 []");
    PRIME_REQUIRE(images >= 0, "images: a number from 0");
    out = new_tensor({}, {}, ScalarType::Long, numbers);
    counter = static_cast<int64_t*>(numbers.data_ptr());
    first = static_cast<int64_t*>(out.data_ptr());
  }
};

struct Apply {
  ApplyArgs args{};
  Tensor out;

  Apply(const Tensor& images, const Tensor& plan, const std::optional<Tensor>& flip,
        const std::vector<int64_t>& plan_shape, ScalarType out_dtype, const std::vector<double>& mean,
        const std::vector<double>& scale, bool channels_last) {
    PRIME_REQUIRE(images.dim() == 4, "images: [N, C, H, W]");
    read_plan_shape(plan_shape, args.shape);
    PRIME_REQUIRE(plan.dim() == 2 && plan.scalar_type() == ScalarType::Int && plan.is_contiguous() &&
                      plan.size(1) == row_words(args.shape),
                  "plan: contiguous int32 [R, words of a row]");
    PRIME_REQUIRE(plan.get_device_index() == images.get_device_index() && plan.is_cpu() == images.is_cpu(),
                  "images and plan on one device");
    args.images = images.size(0), args.rows = plan.size(0);
    if (flip) {
      PRIME_REQUIRE(flip->dim() == 1 && flip->size(0) == images.size(0) && flip->scalar_type() == ScalarType::Bool &&
                        flip->is_contiguous(),
                    "flip: contiguous bool [N]");
      PRIME_REQUIRE(flip->get_device_index() == images.get_device_index() && flip->is_cpu() == images.is_cpu(),
                    "images and flip on one device");
      args.flip = static_cast<const uint8_t*>(flip->data_ptr());
    }
    const int64_t channels = images.size(1), height = images.size(2), width = images.size(3);
    read_size(channels, height, width, args);
    read_normalization(mean, scale, args);
    args.in = images.data_ptr();
    args.in_type = dtype_of(images.scalar_type());
    args.in_strides = {images.stride(0), images.stride(1), images.stride(2), images.stride(3)};
    args.out_type = dtype_of(out_dtype);
    const Strides s = args.out_strides = dense_strides(channels, height, width, channels_last);
    out = new_tensor({args.rows, channels, height, width}, {s.n, s.c, s.h, s.w}, out_dtype, images);
    args.out = out.data_ptr();
    args.plan = static_cast<const int32_t*>(plan.data_ptr());
  }
};

}  // namespace prime
