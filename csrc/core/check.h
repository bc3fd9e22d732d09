// Checks of the core's arguments. Both back ends run them at every entry, before anything else: whatever a binding
// passes, only memory that the arguments describe is read or written, and the work is bounded. A wrong value raises
// std::invalid_argument, which says what was expected and what was given. Addresses, and that the memory there is as
// large as sizes and strides say, cannot be checked.
//
// The rows of a plan are data. No bits in them can do harm (`valid` guards every slot when it is run). Whether they are
// meaningful is checked only on the CPU, where reading them needs no synchronization: check_rows().
#pragma once
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "image.h"

namespace prime {

template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream message;
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

template <class T>
void check_range(const char* name, T value, T low, T high) {
  require(value >= low && value <= high, name, ": expected ", low, " to ", high, ", got ", value);
}

// A whole number among the fields of Distributions.
inline void check_whole(const char* name, double value, int low, int high) {
  check_range<double>(name, value, low, high);
  require(value == std::floor(value), name, ": expected a whole number, got ", value);
}

template <class T>
void check_size(T height, T width) {
  check_range<T>("height", height, kMinSide, kMaxSide);
  check_range<T>("width", width, kMinSide, kMaxSide);
}

inline void check_address(const char* name, const void* address, uintptr_t alignment) {
  const uintptr_t a = reinterpret_cast<uintptr_t>(address);
  require(a != 0 && a % alignment == 0, name, ": expected an address that is a multiple of ", alignment, ", got ", a);
}

// All but height and width, which fn.prime.augment sets image by image.
inline void check(const Distributions& d) {
  const auto whole = check_whole;
  const auto real = check_range<double>;
  const auto pixels = [](const char*, double, int, int) {};
#define FIELD(name, kind, least, largest, what) kind("distributions: " #name, d.name, least, largest);
  PRIME_DISTRIBUTIONS(FIELD)
#undef FIELD
  require(d.spatial_cut != 1, "distributions: spatial_cut: expected 0 or 2 to ", kMaxCut, ", got 1");
}

inline void check(const SampleArgs& a) {
  check(a.distributions);
  check_size(a.distributions.height, a.distributions.width);
  check_range<int64_t>("images", a.images, 0, kMaxImages);
  check_range("views", a.view_count, 1, kMaxViews);
  check_address("views", a.views, alignof(int64_t));
  for (int v = 0; v < a.view_count; ++v) check_range<int64_t>("view", a.views[v], -1, UINT32_MAX);
  check_range<int64_t>("epoch_step", a.epoch_step, 0, 1);
  if (a.images == 0) return;
  check_address("index", a.index, alignof(int64_t));
  check_address("epoch", a.epoch, alignof(int64_t));
  check_address("plan", a.plan, alignof(int32_t));
}

// In host memory: checks every image's epoch, of which 32 bits are used.
inline void check_epochs(const SampleArgs& a) {
  const int64_t count = a.epoch_step ? a.images : a.images > 0;
  for (int64_t i = 0; i < count; ++i) check_range<int64_t>("epoch", a.epoch[i], 0, UINT32_MAX);
}

inline void check_plan_shape(int64_t chains, int64_t depth, int64_t filter, int64_t max_cut, int64_t max_band,
                             int64_t waves) {
  check_range<int64_t>("chains", chains, 1, kMaxChains);
  check_range<int64_t>("depth", depth, 1, kMaxDepth);
  check_range<int64_t>("filter_size", filter, 1, kMaxFilter);
  require(filter % 2 == 1, "filter_size: expected an odd number, got ", filter);
  check_range<int64_t>("max_cut", max_cut, 0, kMaxCut);
  check_range<int64_t>("max_band", max_band, 0, kMaxColorCut);
  check_range<int64_t>("waves", waves, 0, 1);
}

inline int64_t item_size(DType type) { return type == DType::u8 ? 1 : type == DType::f32 ? 4 : 2; }

// One of the two images: offsets of its values must fit 64 bits.
inline void check_image(const char* name, const void* address, DType type, Strides s, const ApplyArgs& a) {
  const int number = static_cast<int>(type);
  require(number >= 0 && number <= static_cast<int>(DType::u16), name, ": expected type 0 to 4, got ", number);
  check_address(name, address, static_cast<uintptr_t>(item_size(type)));
  const auto reach = [](int64_t stride, int64_t count) { return std::fabs(static_cast<double>(stride)) * count; };
  require(reach(s.n, a.rows) + reach(s.c, a.channels) + reach(s.h, a.height) + reach(s.w, a.width) < 1e18, name,
          ": expected strides of an array in 64-bit memory, got ", s.n, ", ", s.c, ", ", s.h, ", ", s.w);
}

inline void check(const ApplyArgs& a) {
  check_plan_shape(a.shape.chains, a.shape.depth, a.shape.filter, a.shape.max_cut, a.shape.max_band, a.shape.waves);
  check_range("channels", a.channels, 1, kMaxChannels);
  check_size(a.height, a.width);
  check_range<int64_t>("images", a.images, 0, kMaxImages);
  require(a.images ? a.rows % a.images == 0 && a.rows >= a.images && a.rows / a.images <= kMaxViews : a.rows == 0,
          "plan: expected 1 to ", kMaxViews, " rows for each of ", a.images, " images, got ", a.rows, " rows");
  for (int c = 0; c < a.channels; ++c)
    require(std::isfinite(a.mean[c]) && std::isfinite(a.scale[c]),
            "mean, std: expected numbers that are finite in float32, also 1 / std, got ", a.mean[c], " and ",
            1.f / a.scale[c]);
  if (a.rows == 0) return;
  check_image("images", a.in, a.in_type, a.in_strides, a);
  check_image("out", a.out, a.out_type, a.out_strides, a);
  check_address("plan", a.plan, alignof(int32_t));
}

// Checks that plans of this shape have room for what is drawn from `d`.
inline void check_room(const Distributions& d, const PlanShape& shape) {
  const double cut = d.spatial_cut != 0 ? d.spatial_cut : d.spatial_cut_max;
  const double color_cut = d.color_cut != 0 ? d.color_cut : d.color_cut_max;
  const double band = d.color_band != 0 && d.color_band < color_cut ? d.color_band : color_cut;
  require(shape.chains == d.chains && shape.depth == d.depth && (d.spatial == 0 || cut <= shape.max_cut) &&
              (d.color == 0 || band <= shape.max_band) && shape.waves == (d.wave_strength != 0),
          "distributions, plan_shape: expected those of one configuration, got distributions of ", d.chains,
          " chains of depth ", d.depth, ", cuts up to ", d.spatial != 0 ? cut : 0, ", bands up to ",
          d.color != 0 ? band : 0, " and a wave_strength of ", d.wave_strength, ", and a plan_shape of ", shape.chains,
          ", ", shape.depth, ", ", shape.max_cut, ", ", shape.max_band, " and ", shape.waves);
}

// In host memory: checks that every row is valid, that is, could have been drawn.
inline void check_rows(const int32_t* plan, int64_t rows, const PlanShape& shape) {
  for (int64_t r = 0; r < rows; ++r) {
    const Row<const int32_t> row = row_of(plan, r, shape);
    float sum = 0.f, least = 0.f;
    for (int i = 0; i <= shape.chains; ++i) {
      const float weight = row.weight(i);
      sum += weight, least = weight < least ? weight : least;
    }
    require(least >= 0.f && std::fabs(sum - 1.f) <= kWeightTolerance, "plan: row ", r,
            ": expected weights >= 0 that sum to 1 within 1/512, got a minimum of ", least, " and a sum of ", sum);
    for (int c = 0; c < shape.chains; ++c)
      for (int j = 0; j < shape.depth; ++j) {
        const Slot s = row.slot(c, j);
        require(valid(s, shape), "plan: row ", r, ", chain ", c, ", slot ", j,
                ": expected a known primitive, a strength of 0 to ", kMaxStrength, ", a spatial cut (last) of 1 to ",
                shape.max_cut, ", a color band first to last of at most ", shape.max_band, " frequencies from 1 to ",
                kMaxColorCut, "; got primitive ", s.primitive, ", strength ", s.strength, ", first ", s.first,
                ", last ", s.last);
      }
    require(valid_strength(row.wave_strength()), "plan: row ", r, ": expected waves of a strength of 0 to ",
            kMaxStrength, ", got ", row.wave_strength());
  }
}

}  // namespace prime
