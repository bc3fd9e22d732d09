// Python dictionaries of plain numbers and addresses into the core's argument structs.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

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
  require(s.size() == 4, name, ": expected four strides, got ", s.size());
  return {s[0], s[1], s[2], s[3]};
}

// `views` keeps the numbers that SampleArgs::views points to.
inline SampleArgs sample_args(const py::dict& d, std::vector<int64_t>& views) {
  SampleArgs a{};
  views = d["views"].cast<std::vector<int64_t>>();
  check_range<size_t>("views", views.size(), 1, kMaxViews);
  read_distributions(d["law"].cast<std::vector<double>>(), a.distributions);
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
  read_size(d["height"].cast<int64_t>(), d["width"].cast<int64_t>(), a);
  read_plan_shape(d["shape"].cast<std::vector<int64_t>>(), a.shape);
  a.flip = address<const uint8_t>(d, "flip");
  read_normalization(d["mean"].cast<std::vector<double>>(), d["scale"].cast<std::vector<double>>(), a);
  return a;
}

}  // namespace prime
