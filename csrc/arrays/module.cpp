// prime_dali._arrays: the CPU back end for prime_dali/arrays.py, which checks arguments.
#include "../cpu/cpu.h"
#include "../dali/core.h"
#include "arguments.h"

#include <map>
#include <string>

namespace prime {

PYBIND11_MODULE(_arrays, m) {
  m.attr("compiler") = __VERSION__;
  m.def("missing_instructions", &missing_instructions);
  m.def("philox", [](std::vector<uint32_t> counter, std::vector<uint32_t> key) {
    const Block<uint32_t> b =
        philox<uint32_t>({counter.at(0), counter.at(1), counter.at(2), counter.at(3)}, key.at(0), key.at(1));
    return std::vector<uint32_t>{b.x, b.y, b.z, b.w};
  });
  m.def("functions", [] {  // of CoreFunctions (csrc/dali/core.h), for the DALI plugin
    return std::map<std::string, size_t>{{"size", CoreFunctions{}.size},
                                         {"sample_cpu", reinterpret_cast<size_t>(&sample_cpu)},
                                         {"apply_cpu", reinterpret_cast<size_t>(&apply_cpu)}};
  });
  m.def("sample", [](const py::dict& d) {
    std::vector<int64_t> views;
    const SampleArgs args = sample_args(d, views);
    py::gil_scoped_release release;
    sample_cpu(args);
  });
  m.def("check_rows", [](const py::dict& d) {  // of Plan.validate()
    PlanShape shape{};
    read_plan_shape(d["shape"].cast<std::vector<int64_t>>(), shape);
    const int32_t* plan = address<const int32_t>(d, "plan");
    const int64_t rows = d["rows"].cast<int64_t>();
    if (rows > 0) check_address("plan", plan, alignof(int32_t));
    check_rows(plan, rows, shape);
  });
  m.def("apply", [](const py::dict& d) {
    const ApplyArgs args = apply_args(d);
    const int threads = d["threads"].cast<int>();
    BadPixels bad;
    {
      py::gil_scoped_release release;
      bad = apply_cpu(args, threads);
    }
    if (bad.values) throw py::value_error(pixel_error("array", bad));
  });
}

}  // namespace prime
