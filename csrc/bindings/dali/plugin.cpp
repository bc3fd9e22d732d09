// The native DALI operator, fn.prime.augment. Plans are drawn on the CPU, also for the GPU: a few microseconds an
// image.
#include <dali/kernels/dynamic_scratchpad.h>
#include <dali/operators/random/rng_base.h>

#include "../arguments.h"
#include "../status.h"

namespace prime {

using namespace dali;

// prime_dali/dali/native.py compares this with the core's before DALI gets to know of this plugin.
PRIME_EXPORT uint64_t prime_dali_plugin_interface() { return interface_number(); }

namespace {

DType dtype_of(DALIDataType type, const char* what) {
  switch (type) {
    case DALI_UINT8: return DType::u8;
    case DALI_UINT16: return DType::u16;
    case DALI_FLOAT16: return DType::f16;
    case DALI_FLOAT: return DType::f32;
    default: DALI_FAIL(make_string(what, ": expected UINT8, UINT16, FLOAT16 or FLOAT, got ", type));
  }
}

bool is_integer(DALIDataType type) { return type == DALI_UINT8 || type == DALI_UINT16; }

// DALI_ENFORCE would put the condition, in C++, before the message.
template <class... Parts>
void expect(bool holds, const Parts&... message) {
  if (!holds) DALI_FAIL(make_string(message...));
}

bool is_sequence(const TensorLayout& layout) { return layout.size() == 4; }

// Frames, where a batch is of sequences; channels first or last.
TensorLayout layout_of(bool sequence, bool channels_last) {
  return sequence ? (channels_last ? "FHWC" : "FCHW") : (channels_last ? "HWC" : "CHW");
}

// HWC or CHW, or of sequences FHWC or FCHW.
TensorLayout checked_layout(const TensorLayout& layout, const char* name) {
  const bool sequence = is_sequence(layout);
  expect(layout == layout_of(sequence, true) || layout == layout_of(sequence, false), name,
         ": expected HWC or CHW, or of sequences FHWC or FCHW, got ", layout);
  return layout;
}

// The layout that an argument names; empty if it is not given.
TensorLayout layout_argument(const OpSpec& spec, const char* name) {
  const TensorLayout layout(spec.GetArgument<std::string>(name));
  return layout.empty() ? layout : checked_layout(layout, name);
}

template <class Backend>
class Augment : public rng::OperatorWithRng<Operator<Backend>> {
 public:
  using Base = rng::OperatorWithRng<Operator<Backend>>;

  explicit Augment(const OpSpec& spec) : Base(spec) {
    expect(prime_interface() == interface_number(),
           "the plugin was built for another version of prime-dali; build it with `prime-dali build-dali-plugin`");
    if constexpr (std::is_same_v<Backend, GPUBackend>)
      expect(prime_cuda_version(), "prime_dali was built without CUDA; see prime-dali doctor");
    const auto numbers = spec.GetRepeatedArgument<float>("distributions");
    read_distributions({numbers.begin(), numbers.end()}, distributions_);
    read_plan_shape(spec.GetRepeatedArgument<int>("plan_shape"), format_.shape);
    check_room(distributions_, format_.shape);
    for (int view : spec.GetRepeatedArgument<int>("view")) views_.push_back(view);
    expect(!views_.empty() && views_.size() <= kMaxViews, "view: expected 1 to ", kMaxViews, " numbers, got ",
           views_.size());
    for (int64_t view : views_) expect(view >= -1, "view: expected -1 (clean) or numbers from 0, got ", view);
    int64_t seed = 0;
    if (!spec.TryGetArgument(seed, "key")) seed = spec.GetArgument<int64_t>("seed");
    seed_ = static_cast<uint64_t>(seed);
    const auto mean = spec.GetRepeatedArgument<float>("mean"), std = spec.GetRepeatedArgument<float>("std");
    expect(mean.size() == std.size(), "mean, std: expected as many numbers each, got ", mean.size(), " and ",
           std.size());
    means_.assign(mean.begin(), mean.end());
    for (float m : mean)
      expect(m <= 1.f, "mean: expected numbers up to 1, on the [0, 1] scale, got ", m,
             "; divide mean and std of the 0 to 255 scale by 255");
    for (float s : std) {
      expect(s > 0.f, "std: expected positive numbers, got ", s);
      scales_.push_back(1.0 / s);
    }
    spec.TryGetArgument(out_dtype_, "dtype");
    if (out_dtype_ != DALI_NO_TYPE) dtype_of(out_dtype_, "dtype");
    expect(means_.empty() || !is_integer(out_dtype_), "dtype: expected FLOAT16 or FLOAT for normalized images");
    in_layout_ = layout_argument(spec, "layout");
    out_layout_ = layout_argument(spec, "output_layout");
  }
  ~Augment() override { prime_free_bad_pixels(bad_on_gpu_); }

 protected:
  bool SetupImpl(std::vector<OutputDesc>& outputs, const Workspace& ws) override {
    const auto& in = ws.Input<Backend>(0);
    layout_ = input_layout(in.shape().sample_dim(), in.GetLayout());
    in_type_ = dtype_of(in.type(), "images");
    const TensorLayout out_layout = out_layout_.empty() ? layout_ : out_layout_;
    expect(is_sequence(out_layout) == is_sequence(layout_), "output_layout: expected the axes of ", layout_,
           " in another order, got ", out_layout);
    channels_last_ = out_layout == layout_of(is_sequence(layout_), true);
    type_ = out_dtype_ != DALI_NO_TYPE ? out_dtype_ : !means_.empty() && is_integer(in.type()) ? DALI_FLOAT : in.type();
    const int images = in.num_samples();
    TensorListShape<> shape(images, in.shape().sample_dim());
    frames_.clear();
    for (int i = 0; i < images; ++i) {
      const TensorShape<> s = in.tensor_shape(i);
      const auto side = [&](char axis) { return s[layout_.find(axis)]; };
      const int64_t channels = side('C'), height = side('H'), width = side('W');
      if (i == 0) format_.channels = static_cast<int>(std::min<int64_t>(channels, kMaxChannels + 1));
      expect(channels >= 1 && channels <= kMaxChannels, "images: expected ", layout_, " with 1 to ", kMaxChannels,
             " channels, got ", channels, " in image ", i, "; of another layout, say layout=\"CHW\" or \"HWC\"");
      expect(channels == format_.channels, "images: expected one number of channels in a batch, got ", format_.channels,
             " in image 0 and ", channels, " in image ", i);
      expect(height >= kMinSide && height <= kMaxSide && width >= kMinSide && width <= kMaxSide, "images: expected ",
             kMinSide, " to ", kMaxSide, " pixels, got ", height, " x ", width, " in image ", i);
      const int64_t count = is_sequence(layout_) ? side('F') : 1;
      for (int64_t f = 0; f < count; ++f)
        frames_.push_back({i, static_cast<int>(height), static_cast<int>(width), f * channels * height * width});
      TensorShape<> made = s;
      for (int axis = 0; axis < out_layout.size(); ++axis) made[axis] = side(out_layout[axis]);
      shape.set_tensor_shape(i, made);
    }
    expect(means_.empty() || images == 0 || means_.size() == static_cast<size_t>(format_.channels),
           "mean, std: expected ", format_.channels, " numbers each, one per channel, got ", means_.size());
    if (images) read_normalization(means_, scales_, format_);
    outputs.assign(views_.size(), {shape, type_});
    draw(ws, images);
    return true;
  }

  void RunImpl(Workspace& ws) override {
    for (size_t v = 0; v < views_.size(); ++v)
      ws.Output<Backend>(v).SetLayout(layout_of(is_sequence(layout_), channels_last_));
    run(ws);
  }

 private:
  // The layout of a batch: as the argument says, as DALI knows, or channels last.
  TensorLayout input_layout(int axes, const TensorLayout& known) const {
    const TensorLayout layout = !in_layout_.empty() ? in_layout_
                                : known.empty()     ? layout_of(axes == 4, true)
                                                    : checked_layout(known, "images");
    expect(axes == layout.size(), "images: expected ", int{layout.size()}, " axes, ", layout, ", got ", axes,
           axes < 3 ? "; images without an axis of channels need one"
                    : "; layout=\"HWC\" or \"CHW\" are images, \"FHWC\" or \"FCHW\" sequences");
    for (int axis = 0; axis < known.size(); ++axis)  // other letters, as D, may be frames
      expect(known[axis] == layout[axis] || TensorLayout("FHWC").find(known[axis]) < 0, "images: expected ", layout,
             ", as layout= says, got ", known,
             ", as DALI knows them; give their layout=, or correct what DALI knows by ", "fn.reshape(images, layout=\"",
             layout, "\")");
    return layout;
  }

  // What is augmented as an image: one, or a frame of a sequence, of which all get the same plan.
  struct Frame {
    int sample, height, width;
    int64_t offset;  // of its values in the sample
    bool is_large_as(const Frame& f) const { return height == f.height && width == f.width; }
    const char* at(const void* start, DType type) const {
      return static_cast<const char*>(start) + offset * item_size(type);
    }
    char* at(void* start, DType type) const { return static_cast<char*>(start) + offset * item_size(type); }
  };

  // An argument of every image, as one number or as tensors of one element.
  template <class T>
  std::vector<T> scalars(const char* name, const Workspace& ws, int images) const {
    if (!this->spec_.HasTensorArgument(name)) return std::vector<T>(images, this->spec_.template GetArgument<T>(name));
    const auto& given = ws.ArgumentInput(name);
    std::vector<T> values(images);
    const DALIDataType type = given.type();
    expect(!std::is_integral_v<T> ||
               (!IsFloatingPoint(type) && type != DALI_UINT64 && (type != DALI_BOOL || name == std::string("flip"))),
           name, ": expected integers that fit int64, got ", type, "; cast them to INT64");
    for (int i = 0; i < images; ++i) {
      expect(volume(given.tensor_shape(i)) == 1, name, ": expected one number per image, got shape ",
             given.tensor_shape(i), " for image ", i, "; in dynamic mode give a batch, as of ndd.as_batch");
      TYPE_SWITCH(
          type, type2id, Given,
          (bool, uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t, float16, float, double),
          (values[i] = static_cast<T>(*static_cast<const Given*>(given.raw_tensor(i)));),
          (DALI_FAIL(make_string(name, ": expected numbers, got ", type));));
    }
    return values;
  }

  // Plans of all frames, one view after another; flips.
  void draw(const Workspace& ws, int images) {
    const bool indexed = this->spec_.HasArgument("index") || this->spec_.HasTensorArgument("index");
    auto indices = scalars<int64_t>("index", ws, images);
    const auto epochs = scalars<int64_t>("epoch", ws, images);
    const auto flips = scalars<int64_t>("flip", ws, images);
    const auto alphas = scalars<float>("alpha", ws, images);
    if (!indexed)
      for (int i = 0; i < images; ++i) {
        auto rng = this->GetSampleRNG(i);
        const uint64_t high = rng.next();
        indices[i] = static_cast<int64_t>(high << 32 | rng.next());
      }
    const int64_t words = row_words(format_.shape);
    plans_.resize(views_.size() * frames_.size() * words), flips_.resize(frames_.size());
    size_t first = 0;
    for (int i = 0; i < images; ++i) {
      size_t end = first;
      while (end < frames_.size() && frames_[end].sample == i) flips_[end++] = flips[i] != 0;
      const float alpha = alphas[i];
      check_range<double>("alpha", alpha, 0, kMaxAmplitude);
      if (first == end) continue;  // a sequence of no frames
      distributions_.height = frames_[first].height, distributions_.width = frames_[first].width;
      for (size_t v = 0; v < views_.size(); ++v) {
        int32_t* plan = plans_.data() + (v * frames_.size() + first) * words;
        const SampleArgs args{.distributions = distributions_,
                              .index = &indices[i],
                              .epoch = &epochs[i],
                              .epoch_step = 0,
                              .images = 1,
                              .seed = seed_,
                              .views = &views_[v],
                              .view_count = 1,
                              .plan = plan,
                              .batch_index = &indices[0],
                              .batch_epoch = &epochs[0]};
        require_success(prime_sample_cpu(&args));
        const Row<int32_t> row = row_of(plan, 0, format_.shape);
        for (int c = 0; c < row.chains; ++c)
          for (int j = 0; j < row.depth; ++j) {
            Slot s = row.slot(c, j);
            s.strength *= alpha;
            row.set_slot(c, j, s);
          }
        row.set_wave_strength(row.wave_strength() * alpha);
        for (size_t other = 1; other < end - first; ++other) std::copy_n(plan, words, plan + other * words);
      }
      first = end;
    }
  }

  // `count` frames from `first` on, one view.
  ApplyArgs arguments(const void* in, void* out, int64_t in_step, int64_t out_step, int first, int count,
                      const int32_t* plan, const uint8_t* flip) const {
    ApplyArgs a = format_;
    a.bad = bad_on_gpu_;
    const int height = frames_[first].height, width = frames_[first].width;
    const bool last = layout_ == layout_of(is_sequence(layout_), true);
    a.in = in, a.in_type = in_type_, a.in_strides = dense_strides(a.channels, height, width, last);
    a.out = out, a.out_type = dtype_of(type_, "dtype");
    a.out_strides = dense_strides(a.channels, height, width, channels_last_);
    a.in_strides.n = in_step, a.out_strides.n = out_step;
    a.plan = plan, a.rows = a.images = count, a.height = height, a.width = width;
    a.flip = flip;
    return a;
  }

  void run(Workspace& ws);

  Distributions distributions_;
  ApplyArgs format_{};  // the shape of plans; of the batch: channels, mean and scale
  std::vector<double> means_, scales_;
  std::vector<int64_t> views_;
  uint64_t seed_;
  bool channels_last_ = true;
  DALIDataType out_dtype_ = DALI_NO_TYPE, type_ = DALI_NO_TYPE;
  DType in_type_ = DType::u8;
  TensorLayout in_layout_, out_layout_, layout_;
  std::vector<Frame> frames_;
  std::vector<int32_t> plans_;
  std::vector<uint8_t> flips_;
  std::vector<BadPixels> bad_;       // by frame; of the CPU
  BadPixels* bad_on_gpu_ = nullptr;  // of all batches since the last error
};

// One frame after another, on DALI's threads.
template <>
void Augment<CPUBackend>::run(Workspace& ws) {
  const auto& in = ws.Input<CPUBackend>(0);
  auto& pool = ws.GetThreadPool();
  const int frames = static_cast<int>(frames_.size());
  const int64_t words = row_words(format_.shape);
  bad_.assign(frames, {});
  for (size_t v = 0; v < views_.size(); ++v) {
    auto& out = ws.Output<CPUBackend>(v);
    for (int i = 0; i < frames; ++i) {
      const Frame& frame = frames_[i];
      const void* from = frame.at(in.raw_tensor(frame.sample), in_type_);
      void* to = frame.at(out.raw_mutable_tensor(frame.sample), dtype_of(type_, "dtype"));
      pool.AddWork(
          [=, this](int) {
            const int32_t* plan = plans_.data() + (v * frames + i) * words;
            const ApplyArgs args = arguments(from, to, 0, 0, i, 1, plan, &flips_[i]);
            BadPixels bad;
            require_success(prime_apply_cpu(&args, 1, &bad));
            if (v == 0) bad_[i] = bad;  // the other views are of the same pixels
          },
          int64_t{frame.height} * frame.width);
    }
  }
  pool.RunAll();
  BadPixels all{};
  int first = 0;
  for (int i = frames - 1; i >= 0; --i)
    if (bad_[i].values) all.add(bad_[i]), first = frames_[i].sample;
  if (all.values) DALI_FAIL(pixel_error("images", all, make_string(" (first in image ", first, ")")));
}

// Frames of one size that lie at equal distances go in one call; a batch as DALI makes it is one such run.
template <>
void Augment<GPUBackend>::run(Workspace& ws) {
  const auto& in = ws.Input<GPUBackend>(0);
  const int frames = static_cast<int>(frames_.size());
  const int64_t words = row_words(format_.shape);
  if (!bad_on_gpu_) require_success(prime_new_bad_pixels(&bad_on_gpu_));
  BadPixels bad;
  prime_take_bad_pixels(bad_on_gpu_, &bad);
  if (bad.values) DALI_FAIL(pixel_error("images", bad, " in an earlier batch (its output is NaN there, 0 in uint8)"));
  kernels::DynamicScratchpad scratch(ws.stream());
  const int32_t* plans = scratch.ToGPU(ws.stream(), plans_);
  const uint8_t* flips = scratch.ToGPU(ws.stream(), flips_);
  for (size_t v = 0; v < views_.size(); ++v) {
    auto& out = ws.Output<GPUBackend>(v);
    const DType out_type = dtype_of(type_, "dtype");
    const auto source = [&](int i) { return frames_[i].at(in.raw_tensor(frames_[i].sample), in_type_); };
    const auto target = [&](int i) { return frames_[i].at(out.raw_mutable_tensor(frames_[i].sample), out_type); };
    const auto step = [&](const void* a, const void* b, int64_t size) {  // in elements; -1: none
      const int64_t bytes = static_cast<const char*>(b) - static_cast<const char*>(a);
      return bytes > 0 && bytes % size == 0 ? bytes / size : -1;
    };
    for (int first = 0, count; first < frames; first += count) {
      int64_t in_step = 0, out_step = 0;
      for (count = 1; first + count < frames && frames_[first + count].is_large_as(frames_[first]); ++count) {
        const int i = first + count;
        const int64_t from = step(source(i - 1), source(i), item_size(in_type_));
        const int64_t to = step(target(i - 1), target(i), item_size(out_type));
        if (from < 0 || to < 0 || (count > 1 && (from != in_step || to != out_step))) break;
        in_step = from, out_step = to;
      }
      const ApplyArgs a = arguments(source(first), target(first), in_step, out_step, first, count,
                                    plans + (v * frames + first) * words, flips + first);
      size_t bytes;
      require_success(prime_workspace_bytes(&a, &bytes));
      auto workspace =
          mm::alloc_raw_async_unique<uint8_t, mm::memory_kind::device>(bytes, ws.stream(), ws.stream(), 256);
      require_success(prime_apply_cuda(&a, workspace.get(), bytes, ws.stream()));
    }
  }
}

}  // namespace

}  // namespace prime

DALI_SCHEMA(prime__Augment)
    .DocStr(R"(PRIME data augmentation (Modas et al., ECCV 2022): random filters, smooth displacements and color maps,
mixed convexly, all drawn per image.

The output of an image depends on ``seed``, ``index``, ``epoch`` and ``view`` alone, or with ``draws="batch"`` on those
of the first image of its batch too. ``prime_dali.dali.prime(...,
mode="native")`` fills in the arguments; called directly, ``distributions`` and ``plan_shape`` come
from ``prime_dali.dali.arguments(config)``.)")
    .NumInput(1)
    .InputDox(0, "images", "TensorList",
              R"(Images of 1 to 16 channels, HWC or CHW, or sequences of them, FHWC or FCHW, of
which all frames are augmented in the same way; 8 to 4096 pixels high and wide: uint8, uint16, or float16 or float32 in
[0, 1]; values up to 1/512 outside are clamped. Sizes may differ, numbers of channels may not.)")
    .OutputFn([](const dali::OpSpec& spec) { return static_cast<int>(spec.GetRepeatedArgument<int>("view").size()); })
    .AddArg("distributions", "The distributions, as numbers: ``prime_dali.dali.arguments(config)``.", DALI_FLOAT_VEC)
    .AddArg("plan_shape", "The sizes of a plan: ``prime_dali.dali.arguments(config)``.", DALI_INT_VEC)
    .AddOptionalArg<int64_t>("index",
                             R"(Each image's index in the data set. Without it, random numbers that are part
of DALI's checkpoints.)",
                             int64_t{0}, true)
    .AddOptionalArg<int64_t>("epoch", "The epoch, from 0.", int64_t{0}, true)
    .AddOptionalArg<int64_t>("flip", "Nonzero: all outputs of the image are mirrored left to right.", int64_t{0}, true)
    .AddOptionalArg<float>("alpha", "Scales every amplitude of the image, in addition to the configuration's alpha.",
                           1.f, true)
    .AddOptionalArg<int64_t>("key", R"(The run's seed, in dynamic mode, which has no ``seed``. Without it, ``seed``,
which is -1 there.)",
                             nullptr)
    .AddOptionalArg("view", "Numbers of the views, one output each; -1 is the clean image.", std::vector<int>{0})
    .AddOptionalArg("mean",
                    "A number per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Needs ``std``.",
                    std::vector<float>{})
    .AddOptionalArg("std", "Positive numbers, one per channel. Needs ``mean``.", std::vector<float>{})
    .AddOptionalTypeArg("dtype", R"(UINT8, UINT16, FLOAT16 or FLOAT. Without it, that of the images, or FLOAT if
integers are normalized.)")
    .AddOptionalArg<std::string>("layout",
                                 R"(The axes of the images in one of the orders above. Without it, as DALI knows, or
channels last.)",
                                 "")
    .AddOptionalArg<std::string>("output_layout",
                                 "The axes of the images in one of the orders above. Without it, theirs.", "")
    .AddRandomSeedArg()
    .AddRandomStateArg();

DALI_REGISTER_OPERATOR(prime__Augment, prime::Augment<dali::CPUBackend>, dali::CPU);
DALI_REGISTER_OPERATOR(prime__Augment, prime::Augment<dali::GPUBackend>, dali::GPU);
