// prime_dali._arrays: the core for prime_dali/arrays.py, which checks arguments with messages for people. A call is an
// object: made of arrays of host memory it is run by cpu(), made of arrays of CUDA memory by cuda(), on a stream.
#include <tuple>
#include <utility>

#include "../../cuda/displacement/precision.h"
#include "../arguments.h"
#include "../status.h"
#include "array.h"

namespace prime {
namespace {

using Numbers = std::vector<double>;

void* address(uintptr_t stream) { return reinterpret_cast<void*>(stream); }

void require_host(const std::vector<py::object>& arrays) {
  for (const py::object& array : arrays)
    require(!Array::on_gpu(array), "expected arrays in host memory, got a CUDA array");
}

// A call that draws a plan, with its arguments checked. It keeps the arrays alive.
class Sample {
 public:
  Sample(const Numbers& distributions, std::vector<int64_t> views, int64_t seed, py::object index, py::object epoch,
         py::object plan)
      : views_(std::move(views)), arrays_{index, epoch, plan} {
    read_distributions(distributions, args_.distributions);
    check_range<size_t>("views", views_.size(), 1, kMaxViews);
    const Array indices("index", index), epochs("epoch", epoch), rows("plan", plan);
    args_.index = indices.dense<const int64_t>("i8", 1);
    args_.images = indices.shape[0];
    args_.epoch = epochs.dense<const int64_t>("i8", 1);  // of each image, or one for all
    args_.epoch_step = epochs.shape[0] != 1;
    require(epochs.shape[0] == 1 || epochs.shape[0] == args_.images, "epoch: expected 1 or ", args_.images,
            " numbers, got ", epochs.shape[0]);
    args_.seed = static_cast<uint64_t>(seed);
    args_.views = views_.data();
    args_.view_count = static_cast<int>(views_.size());
    args_.plan = rows.dense<int32_t>("i4", 2);
    check(args_);
    const Row<int32_t> row = args_.row(0);
    const int64_t count = args_.view_count * args_.images, words = row_words(row.chains, row.depth, row.waves);
    require(rows.shape[0] == count && rows.shape[1] == words, "plan: expected ", count, " rows of ", words,
            " words, got ", rows.shape[0], " of ", rows.shape[1]);
  }
  Sample(const Sample&) = delete;

  void cpu() const {
    require_host(arrays_);
    py::gil_scoped_release release;
    require_success(prime_sample_cpu(&args_));
  }

  void cuda(uintptr_t stream) const {
    py::gil_scoped_release release;
    require_success(prime_sample_cuda(&args_, address(stream)));
  }

 private:
  SampleArgs args_{};
  std::vector<int64_t> views_;
  std::vector<py::object> arrays_;
};

// The words of a plan of this shape, and how many rows they are.
std::pair<const int32_t*, int64_t> read_plan(const py::object& plan, const PlanShape& shape) {
  const Array array("plan", plan);
  const int32_t* words = array.dense<const int32_t>("i4", 2);
  const int64_t wanted = row_words(shape);
  require(array.shape[1] == wanted, "plan: expected rows of ", wanted, " words, got ", array.shape[1]);
  return {words, array.shape[0]};
}

void validate(const py::object& plan, const std::vector<int64_t>& plan_shape) {
  PlanShape shape;
  require_host({plan});
  read_plan_shape(plan_shape, shape);
  const auto [words, rows] = read_plan(plan, shape);
  require_success(prime_check_rows(words, rows, &shape));
}

// A call that augments images, [N, C, H, W] of any strides, with its arguments checked. It keeps the arrays alive.
class Apply {
 public:
  Apply(py::object images, py::object plan, const std::vector<int64_t>& plan_shape, py::object out, py::object flip,
        const Numbers& mean, const Numbers& scale)
      : arrays_{images, plan, out, flip} {
    read_plan_shape(plan_shape, args_.shape);
    const Array in("images", images), made("out", out);
    args_.in = in.data, args_.in_type = in.pixel_type(), args_.in_strides = in.image_strides();
    args_.out = made.data, args_.out_type = made.pixel_type(), args_.out_strides = made.image_strides();
    require(!made.read_only, "out: expected a writable array");
    args_.images = in.shape[0];
    read_size(in.shape[1], in.shape[2], in.shape[3], args_);
    std::tie(args_.plan, args_.rows) = read_plan(plan, args_.shape);
    const std::vector<int64_t> wanted{args_.rows, args_.channels, args_.height, args_.width};
    require(made.shape == wanted, "out: expected ", args_.rows, " images of ", args_.channels, " x ", args_.height,
            " x ", args_.width, ", got ", made.shape[0], " of ", made.shape[1], " x ", made.shape[2], " x ",
            made.shape[3]);
    if (!flip.is_none()) {
      const Array flips("flip", flip);
      args_.flip = flips.dense<const uint8_t>("b1", 1);
      require(flips.shape[0] == args_.images, "flip: expected ", args_.images, " values, got ", flips.shape[0]);
    }
    read_normalization(mean, scale, args_);
  }

  void cpu(int threads) const {
    require_host(arrays_);
    BadPixels bad;
    {
      py::gil_scoped_release release;
      require_success(prime_apply_cpu(&args_, threads, &bad));
    }
    if (bad.values) throw py::value_error(pixel_error("array", bad));
  }

  size_t workspace_bytes() const {
    size_t bytes;
    require_success(prime_workspace_bytes(&args_, &bytes));
    return bytes;
  }

  void cuda(const py::object& workspace, uintptr_t stream) {
    const Array scratch("workspace", workspace);
    void* memory = scratch.dense<uint8_t>("u1", 1);
    int device;
    require_success(prime_bad_pixels_of_device(kArrays, &args_.bad, &device));
    BadPixels bad;
    prime_take_bad_pixels(args_.bad, &bad);
    if (bad.values) throw py::value_error(earlier_pixel_error("array", bad, device));
    py::gil_scoped_release release;
    require_success(prime_apply_cuda(&args_, memory, static_cast<size_t>(scratch.shape[0]), address(stream)));
  }

 private:
  ApplyArgs args_{};
  std::vector<py::object> arrays_;
};

void check_pixels(int device) {
  BadPixels bad;
  int where;
  {
    py::gil_scoped_release release;
    require_success(prime_wait_for_bad_pixels(kArrays, device, &bad, &where));
  }
  if (bad.values) throw py::value_error(earlier_pixel_error("array", bad, where));
}

std::vector<std::string> names(const char* (*field)(int) noexcept) {
  std::vector<std::string> all;
  while (const char* name = field(static_cast<int>(all.size()))) all.push_back(name);
  return all;
}

}  // namespace

PYBIND11_MODULE(_arrays, m) {
  using namespace py::literals;
  m.attr("interface") = prime_interface();
  m.attr("compiler") = prime_compiler();
  m.attr("cuda") = prime_cuda_version();  // None: built without
  m.attr("architectures") = prime_architectures();
  m.attr("distributions_fields") = names(&prime_distributions_field);
  m.attr("plan_shape_fields") = names(&prime_plan_shape_field);
  m.def("missing_instructions", &prime_missing_instructions);
  m.def("instructions", [] {  // which compilation of the CPU back end works on pixels
    const char* name = nullptr;
    require_success(prime_instructions(&name));
    return name;
  });
  m.def(
      "use_instructions", [](const std::string& name) { require_success(prime_use_instructions(name.c_str())); },
      "name"_a);
  m.def("philox", [](std::vector<uint32_t> counter, std::vector<uint32_t> key) {
    const Block<uint32_t> b =
        philox<uint32_t>({counter.at(0), counter.at(1), counter.at(2), counter.at(3)}, key.at(0), key.at(1));
    return std::vector<uint32_t>{b.x, b.y, b.z, b.w};
  });
  m.def("precision", [](int height, int width, float strength, int cut) {  // for tests
    const Precision precision(height, width, {kSpatial, strength, 0, cut});
    return std::pair(precision.coarse, precision.quantization_step);
  });
  m.def("validate", &validate, "plan"_a, "plan_shape"_a);
  m.def("check_pixels", &check_pixels, "device"_a);  // -1: all devices in use
  py::class_<Sample>(m, "Sample", py::module_local())
      .def(py::init<const Numbers&, std::vector<int64_t>, int64_t, py::object, py::object, py::object>(),
           "distributions"_a, "views"_a, "seed"_a, "index"_a, "epoch"_a, "plan"_a)
      .def("cpu", &Sample::cpu)
      .def("cuda", &Sample::cuda, "stream"_a);
  py::class_<Apply>(m, "Apply", py::module_local())
      .def(py::init<py::object, py::object, const std::vector<int64_t>&, py::object, py::object, const Numbers&,
                    const Numbers&>(),
           "images"_a, "plan"_a, "plan_shape"_a, "out"_a, "flip"_a, "mean"_a, "scale"_a)
      .def("cpu", &Apply::cpu, "threads"_a)
      .def("workspace_bytes", &Apply::workspace_bytes)
      .def("cuda", &Apply::cuda, "workspace"_a, "stream"_a);
}

}  // namespace prime
