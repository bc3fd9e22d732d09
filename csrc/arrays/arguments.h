// Python dictionaries of plain numbers and addresses into the core's argument structs.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <vector>

#include "../arguments.h"

namespace prime {

namespace py = pybind11;

template <class T>
T* address(const py::dict& d, const char* name) {
  return reinterpret_cast<T*>(d[name].cast<uintptr_t>());
}

inline Strides strides(const py::dict& d, const char* name) {
  const auto s = d[name].cast<std::vector<int64_t>>();
  if (s.size() != 4) throw std::invalid_argument("prime_dali: expected four strides");
  return {s[0], s[1], s[2], s[3]};
}

// `views` keeps the numbers that SampleArgs::views points to.
inline SampleArgs sample_args(const py::dict& d, std::vector<int64_t>& views) {
  SampleArgs a{};
  views = d["views"].cast<std::vector<int64_t>>();
  if (views.empty() || views.size() > kMaxViews) throw std::invalid_argument("prime_dali: expected 1 to 16 views");
  const auto law = d["law"].cast<std::vector<double>>();
  if (!read_law(law.data(), law.size(), a.law))
    throw std::invalid_argument("prime_dali: expected as many numbers in law as core/plan.h has fields");
  a.index = address<const int64_t>(d, "index");
  a.epoch = address<const int64_t>(d, "epoch");
  a.epoch_step = d["epoch_step"].cast<int64_t>();
  a.images = d["images"].cast<int64_t>();
  a.seed = static_cast<uint64_t>(d["seed"].cast<int64_t>());
  a.views = views.data();
  a.view_count = static_cast<int>(views.size());
  a.plan = address<int32_t>(d, "plan");
  return a;
}

inline ApplyArgs apply_args(const py::dict& d) {
  ApplyArgs a{};
  a.in = address<const void>(d, "in");
  a.in_type = static_cast<DType>(d["in_type"].cast<int>());
  a.in_strides = strides(d, "in_strides");
  a.out = address<void>(d, "out");
  a.out_type = static_cast<DType>(d["out_type"].cast<int>());
  a.out_strides = strides(d, "out_strides");
  a.plan = address<const int32_t>(d, "plan");
  a.rows = d["rows"].cast<int64_t>();
  a.images = d["images"].cast<int64_t>();
  a.height = d["height"].cast<int>();
  a.width = d["width"].cast<int>();
  const auto shape = d["shape"].cast<std::vector<int>>();
  if (shape.size() != 5) throw std::invalid_argument("prime_dali: expected five numbers in shape");
  a.chains = shape[0], a.depth = shape[1], a.filter = shape[2], a.max_cut = shape[3], a.max_band = shape[4];
  a.flip = address<const uint8_t>(d, "flip");
  const auto mean = d["mean"].cast<std::vector<double>>(), scale = d["scale"].cast<std::vector<double>>();
  if (!read_normalization(mean.data(), mean.size(), scale.data(), scale.size(), a))
    throw std::invalid_argument("prime_dali: expected three numbers each in mean and scale, or none");
  return a;
}

}  // namespace prime
