// prime_dali._arrays_cuda: the CUDA back end for prime_dali/arrays.py, on the stream it is given.
#include "../cuda/cuda.h"
#include "../cuda/displacement/precision.h"
#include "arguments.h"

#include <map>
#include <string>

namespace prime {

static void check(int code) {
  if (code) throw std::runtime_error(std::string("prime_dali: CUDA error: ") + cuda_error(code));
}

PYBIND11_MODULE(_arrays_cuda, m) {
  m.attr("cuda") = PRIME_CUDA_VERSION;
  m.attr("architectures") = PRIME_CUDA_ARCHITECTURES;
  m.def("functions", [] {  // of CoreFunctions (csrc/dali/core.h), for the DALI plugin
    return std::map<std::string, size_t>{{"workspace_bytes", reinterpret_cast<size_t>(&workspace_bytes)},
                                         {"apply_cuda", reinterpret_cast<size_t>(&apply_cuda)},
                                         {"new_bad_pixels", reinterpret_cast<size_t>(&new_bad_pixels)},
                                         {"free_bad_pixels", reinterpret_cast<size_t>(&free_bad_pixels)},
                                         {"cuda_error", reinterpret_cast<size_t>(&cuda_error)}};
  });
  m.def("precision", [](int height, int width, float strength, int cut) {  // for tests
    const Precision precision(height, width, {kSpatial, strength, 0, cut});
    return std::pair(precision.coarse, precision.quantization_step);
  });
  m.def("sample", [](const py::dict& d) {
    std::vector<int64_t> views;
    const SampleArgs args = sample_args(d, views);
    void* stream = address<void>(d, "stream");
    py::gil_scoped_release release;
    check(sample_cuda(args, stream));
  });
  m.def("workspace_bytes", [](const py::dict& d) { return workspace_bytes(apply_args(d)); });
  m.def("check_pixels", [](int device) {  // -1: all devices in use
    BadPixels bad;
    int where, error;
    {
      py::gil_scoped_release release;
      error = wait_for_bad_pixels(device, bad, where);
    }
    check(error);
    if (bad.values) throw py::value_error(earlier_pixel_error("array", bad, where));
  });
  m.def("apply", [](const py::dict& d) {
    ApplyArgs args = apply_args(d);
    int device;
    check(bad_pixels_of_device(&args.bad, &device));
    const BadPixels bad = take(args.bad);
    if (bad.values) throw py::value_error(earlier_pixel_error("array", bad, device));
    void* workspace = address<void>(d, "workspace");
    const size_t bytes = d["workspace_bytes"].cast<size_t>();
    void* stream = address<void>(d, "stream");
    py::gil_scoped_release release;
    check(apply_cuda(args, workspace, bytes, stream));
  });
}

}  // namespace prime
