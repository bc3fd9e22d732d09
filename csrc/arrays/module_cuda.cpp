// prime_dali._arrays_cuda: the CUDA back end for prime_dali/arrays.py, on the stream it is given.
#include "../cuda/cuda.h"
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
                                         {"cuda_error", reinterpret_cast<size_t>(&cuda_error)}};
  });
  m.def("sample", [](const py::dict& d) {
    std::vector<int64_t> views;
    const SampleArgs args = sample_args(d, views);
    void* stream = address<void>(d, "stream");
    py::gil_scoped_release release;
    check(sample_cuda(args, stream));
  });
  m.def("workspace_bytes", [](const py::dict& d) { return workspace_bytes(apply_args(d)); });
  m.def("apply", [](const py::dict& d) {
    const ApplyArgs args = apply_args(d);
    void* workspace = address<void>(d, "workspace");
    const size_t bytes = d["workspace_bytes"].cast<size_t>();
    void* stream = address<void>(d, "stream");
    py::gil_scoped_release release;
    check(apply_cuda(args, workspace, bytes, stream));
  });
}

}  // namespace prime
