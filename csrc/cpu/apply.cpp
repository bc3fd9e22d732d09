// One augmented image after another, on as many threads as asked: read, run the chains, mix, add waves, normalize,
// write.
#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "../core/check.h"
#include "cpu.h"

namespace prime {
namespace {

#if defined(__F16C__)
float half_to_float(uint16_t h) { return _cvtsh_ss(h); }
uint16_t float_to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
#if defined(__aarch64__)
using Half = __fp16;  // GCC has _Float16 in C++ there from version 13 on
#else
using Half = _Float16;
#endif
float half_to_float(uint16_t h) {
  Half x;
  memcpy(&x, &h, sizeof x);
  return static_cast<float>(x);
}
uint16_t float_to_half(float x) {
  const Half h = static_cast<Half>(x);
  uint16_t u;
  memcpy(&u, &h, sizeof u);
  return u;
}
#endif

// Calls f(flat index, strided offset) for every value of a [channels, height, width] image.
template <class F>
void each_value(const ApplyArgs& a, Strides s, F f) {
  for (int c = 0; c < a.channels; ++c)
    for (int y = 0; y < a.height; ++y) {
      const int64_t flat = (static_cast<int64_t>(c) * a.height + y) * a.width, start = c * s.c + y * s.h;
      if (s.w == 1) {
        for (int x = 0; x < a.width; ++x) f(flat + x, start + x, c);
      } else {
        for (int x = 0; x < a.width; ++x) f(flat + x, start + x * s.w, c);
      }
    }
}

// Calls f(flat index, value) for every value of an image, integers over their largest.
template <class F>
void each_input(const ApplyArgs& a, int64_t image, F f) {
  const int64_t offset = image * a.in_strides.n;
  const auto read = [&](auto* base, auto convert) {
    const auto* p = base + offset;
    each_value(a, a.in_strides, [&f, p, convert](int64_t i, int64_t at, int) { f(i, convert(p[at])); });
  };
  switch (a.in_type) {
    case DType::u8:
      return read(static_cast<const uint8_t*>(a.in), [](uint8_t v) { return static_cast<float>(v) / 255.f; });
    case DType::f16: return read(static_cast<const uint16_t*>(a.in), half_to_float);
    case DType::bf16: return read(static_cast<const uint16_t*>(a.in), bf16_to_float);
    case DType::f32: return read(static_cast<const float*>(a.in), [](float v) { return v; });
    case DType::u16:
      return read(static_cast<const uint16_t*>(a.in), [](uint16_t v) { return static_cast<float>(v) / 65535.f; });
  }
}

// Values that are no pixels become NaN.
void read_image(const ApplyArgs& a, int64_t image, float* __restrict x) {
  if (a.in_type == DType::u8 || a.in_type == DType::u16)
    return each_input(a, image, [x](int64_t i, float v) { x[i] = v; });
  each_input(a, image, [x](int64_t i, float v) { x[i] = checked(v); });
}

// Everything in the input that is no pixel, once a first one has been met.
BadPixels bad_pixels(const ApplyArgs& a) {
  BadPixels bad{};
  for (int64_t image = 0; image < a.images; ++image)
    each_input(a, image, [&bad](int64_t, float v) {
      const float pixel = checked(v);
      if (pixel != pixel) bad.add(v);
    });
  return bad;
}

void write_image(const ApplyArgs& a, int64_t row, const float* __restrict y) {
  Strides to = a.out_strides;
  int64_t offset = row * to.n;
  if (a.flip && a.flip[row % a.images]) offset += (a.width - 1) * to.w, to.w = -to.w;
  const auto write = [&](auto* base, auto convert) {
    auto* p = base + offset;
    each_value(a, to, [=, &a](int64_t i, int64_t at, int c) { p[at] = convert((y[i] - a.mean[c]) * a.scale[c]); });
  };
  switch (a.out_type) {
    case DType::u8: return write(static_cast<uint8_t*>(a.out), float_to_u8);
    case DType::f16: return write(static_cast<uint16_t*>(a.out), float_to_half);
    case DType::bf16: return write(static_cast<uint16_t*>(a.out), float_to_bf16);
    case DType::f32: return write(static_cast<float*>(a.out), [](float v) { return v; });
    case DType::u16: return write(static_cast<uint16_t*>(a.out), float_to_u16);
  }
}

// Everything one thread needs besides its input and output.
struct Worker {
  const ApplyArgs& args;
  const Geometry& geometry;
  int64_t values = args.channels * geometry.plane();  // of an image
  // [channels, height, width] each: the image, the sum of the mix, and two between slots.
  std::unique_ptr<float[]> clean{new float[values]}, mixed{new float[values]}, ping{new float[values]},
      pong{new float[values]};
  std::unique_ptr<SpatialScratch> spatial;  // made when the first spatial slot comes

  Worker(const ApplyArgs& args, const Geometry& geometry) : args(args), geometry(geometry) {}

  // The end of one chain: `clean` itself where nothing happened.
  const float* run_chain(Row<const int32_t> plan, int chain) {
    const Key key = plan.key();
    const float* src = clean.get();
    for (int j = 0; j < args.shape.depth; ++j) {
      const Slot slot = plan.slot(chain, j);
      float* dst = src == ping.get() ? pong.get() : ping.get();
      if (slot.primitive == kIdentity) continue;
      if (!valid(slot, args.shape)) {  // somebody has edited the plan since it was checked
        std::fill(ping.get(), ping.get() + values, not_a_number());
        return ping.get();
      }
      const SlotRun run{src, dst, geometry, slot, args.shape.filter, key, chain, j, spatial};
      visit(slot.primitive, [&](auto primitive) { run_slot(primitive, run); });
      src = dst;
    }
    return src;
  }

  // False if a value of the image is no pixel.
  bool run(int64_t row) {
    const Row<const int32_t> plan = row_of(args.plan, row, args.shape);
    const float* __restrict x = clean.get();
    float* __restrict y = mixed.get();
    read_image(args, row % args.images, clean.get());
    int bad = 0;
    for (int64_t i = 0; i < values; ++i) y[i] = x[i], bad |= x[i] != x[i];
    if (bad) return false;
    for (int chain = 0; chain < args.shape.chains; ++chain) {
      const float weight = plan.weight(chain + 1);
      if (weight == 0.f) continue;
      const float* end = run_chain(plan, chain);
      if (end == x) continue;
      for (int64_t i = 0; i < values; ++i) y[i] = fma(weight, end[i] - x[i], y[i]);
    }
    const float waves = plan.wave_strength();
    if (waves != 0.f) add_waves(y, geometry, plan.key(), valid_strength(waves) ? waves : not_a_number());
    write_image(args, row, y);
    return true;
  }
};

// Calls work() on `threads` threads, this one among them, and passes the first exception on.
template <class F>
void on_threads(int64_t threads, F work) {
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int64_t t = 1; t < threads; ++t) others.emplace_back(guarded);
  } catch (const std::exception&) {  // the system gives no more threads: those that run do the work
  }
  guarded();
  for (std::thread& t : others) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

BadPixels PRIME_INSTRUCTIONS::apply_images(const ApplyArgs& args, int threads) {
  check(args);
  check_rows(args.plan, args.rows, args.shape);
  const SineTable rows(modes(args.shape.max_cut, args.height), args.height);
  const SineTable other =
      args.height == args.width ? SineTable() : SineTable(modes(args.shape.max_cut, args.width), args.width);
  const Geometry geometry{args.channels, args.height, args.width, &rows, args.height == args.width ? &rows : &other};
  std::atomic<int64_t> next{0};
  std::atomic<bool> good{true};
  on_threads(std::min<int64_t>(threads, args.rows), [&] {
    Worker worker(args, geometry);
    for (int64_t row; good && (row = next++) < args.rows;)
      if (!worker.run(row)) good = false;
  });
  return good ? BadPixels{} : bad_pixels(args);
}

}  // namespace prime
