// Arrays of NumPy and CuPy as they describe themselves, by the array interface protocol. That has a name for every
// dtype that the kernels read: the buffer protocol and DLPack know no bfloat16 of NumPy, nor arrays that are read-only.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "../../core/check.h"

namespace prime {

namespace py = pybind11;

struct Array {
  const char* name;  // for messages
  void* data;
  bool read_only;
  std::string type;                     // such as "f4": kind and bytes of an element
  std::vector<int64_t> shape, strides;  // strides in elements

  static bool on_gpu(const py::handle& object) { return py::hasattr(object, "__cuda_array_interface__"); }

  // Of an object that its caller keeps alive.
  Array(const char* name, const py::handle& object) : name(name) {
    const py::dict d = object.attr(on_gpu(object) ? "__cuda_array_interface__" : "__array_interface__");
    const auto [address, frozen] = d["data"].cast<std::pair<uintptr_t, bool>>();
    data = reinterpret_cast<void*>(address), read_only = frozen;
    type = d["typestr"].cast<std::string>();
    require(type.size() >= 3 && type[0] != '>', name, ": expected elements in native byte order, got ", type);
    type.erase(0, 1);
    const int64_t bytes = type.back() - '0';
    require(type.size() == 2 && bytes > 0 && bytes <= 8, name, ": expected elements of 1 to 8 bytes, got ", type);
    shape = d["shape"].cast<std::vector<int64_t>>();
    if (!d.contains("strides") || d["strides"].is_none()) {
      strides = dense_steps();
      return;
    }
    strides = d["strides"].cast<std::vector<int64_t>>();
    require(strides.size() == shape.size(), name, ": expected ", shape.size(), " strides, got ", strides.size());
    for (size_t axis = 0; axis < shape.size(); ++axis) {  // steps that nobody takes may be anything
      require(shape[axis] <= 1 || strides[axis] % bytes == 0, name, ": expected strides of whole elements, got one of ",
              strides[axis], " bytes");
      strides[axis] /= bytes;
    }
  }

  // The data, if it is `dimensions` axes of elements of this type, one after another.
  template <class T>
  T* dense(const char* wanted, size_t dimensions) const {
    require(type == wanted && shape.size() == dimensions, name, ": expected ", wanted, " of ", dimensions,
            " dimensions, got ", type, " of ", shape.size());
    require(std::is_const_v<T> || !read_only, name, ": expected a writable array");
    const std::vector<int64_t> steps = dense_steps();
    for (size_t axis = 0; axis < shape.size(); ++axis)
      require(shape[axis] <= 1 || strides[axis] == steps[axis], name, ": expected a contiguous array");
    return static_cast<T*>(data);
  }

  // An image's.
  DType pixel_type() const {
    require(shape.size() == 4, name, ": expected [N, C, H, W], got ", shape.size(), " dimensions");
    for (const auto& [code, number] :
         {std::pair("u1", DType::u8), {"f2", DType::f16}, {"V2", DType::bf16}, {"f4", DType::f32}, {"u2", DType::u16}})
      if (type == code) return number;
    throw std::invalid_argument(std::string(name) +
                                ": expected uint8, uint16, float16, bfloat16 (V2) or float32, got " + type);
  }

  Strides image_strides() const { return {strides[0], strides[1], strides[2], strides[3]}; }

 private:
  // Strides of this shape without gaps.
  std::vector<int64_t> dense_steps() const {
    std::vector<int64_t> steps(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;)
      steps[axis - 1] = static_cast<int64_t>(static_cast<uint64_t>(steps[axis]) * static_cast<uint64_t>(shape[axis]));
    return steps;
  }
};

}  // namespace prime
