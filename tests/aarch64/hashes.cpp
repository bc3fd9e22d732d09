// Prints a hash of every plan and of every batch of images that the CPU back end makes in some settings, each with its
// name: the same text on every architecture (tests/test_aarch64.py).
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../../csrc/interface.h"

namespace {

using namespace prime;

void require_success(int status) {
  if (status == kSuccess) return;
  std::fprintf(stderr, "%s\n", prime_message());
  std::exit(1);
}

template <class T>
void print_hash(const std::string& name, const std::vector<T>& values) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  std::printf("%s: %016llx\n", name.c_str(), static_cast<unsigned long long>(hash));
}

// Every primitive at the strengths of the preset imagenet, and noise.
Distributions every_primitive() {
  Distributions d{};
  d.chains = 3, d.depth = 3, d.spectral = d.spatial = d.color = d.noise = 1;
  d.identity = d.random_depth = 1, d.blend = 1, d.alpha = 1;
  d.spectral_std_max = 4, d.spatial_cut_max = 500, d.color_variance_max = 0.05;
  d.color_cut_max = 500, d.color_band = 20, d.noise_std = 0.1;
  return d;
}

struct Case {
  std::string name;
  int height, width, filter;
  Distributions distributions;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [height, width] : {std::pair(8, 8), {33, 20}, {24, 41}}) {
    const std::string size = std::to_string(height) + " x " + std::to_string(width);
    all.push_back({size, height, width, 3, every_primitive()});
    Distributions other = every_primitive();
    other.blend = 0, other.arcsine = 1, other.alpha = 4, other.spatial_cut_max = 40, other.depth = 5,
    other.wave_strength = 10;
    all.push_back({size + ", stronger, with waves", height, width, 5, other});
  }
  return all;
}

// Words of a generator of its own: no library's.
struct Words {
  uint32_t state = 1;
  uint32_t operator()() { return state = state * 1664525u + 1013904223u, state >> 8; }
};

constexpr int kImages = 2;

void print_images(const Case& c, const std::vector<int32_t>& plan, int rows, DType in, DType out) {
  const int64_t plane = int64_t(c.height) * c.width, values = 3 * plane;
  std::vector<uint8_t> bytes(kImages * values);
  std::vector<uint16_t> halves(bytes.size());
  std::vector<float> floats(bytes.size());
  Words words;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(words());
    floats[i] = static_cast<float>(words() & 0xffffff) / 16777216.f;
    halves[i] = static_cast<uint16_t>(words() % 0x3c01u);  // float16 in [0, 1]
  }
  const uint8_t flip[kImages] = {0, 1};
  std::vector<uint8_t> made(rows * values * (out == DType::f32 ? 4 : out == DType::u8 ? 1 : 2));
  ApplyArgs args{};
  args.channels = 3;
  args.in_type = in, args.out_type = out;
  args.in = floats.data();
  if (in == DType::u8) args.in = bytes.data();
  if (in == DType::f16) args.in = halves.data();
  args.in_strides = args.out_strides = {values, plane, c.width, 1};
  args.out = made.data(), args.plan = plan.data(), args.rows = rows, args.images = kImages;
  args.height = c.height, args.width = c.width;
  const Distributions& d = c.distributions;
  args.shape = {int(d.chains), int(d.depth), c.filter, int(d.spatial_cut_max), int(d.color_band), d.wave_strength != 0};
  args.flip = flip;
  for (int channel = 0; channel < 3; ++channel) {
    args.mean[channel] = out == DType::u8 ? 0.f : 0.4f;
    args.scale[channel] = out == DType::u8 ? 1.f : 4.5f;
  }
  BadPixels bad;
  require_success(prime_apply_cpu(&args, 2, &bad));
  static const char* const kNames[] = {"uint8", "float16", "bfloat16", "float32"};
  print_hash(c.name + ", " + kNames[int(in)] + " to " + kNames[int(out)], made);
}

}  // namespace

int main() {
  if (*prime_missing_instructions()) return std::fprintf(stderr, "lacks %s\n", prime_missing_instructions()), 1;
  for (Case& c : cases()) {
    Distributions& d = c.distributions;
    d.height = c.height, d.width = c.width;
    const int64_t index[kImages] = {7919, (int64_t(1) << 33) + 5}, epoch = 3, views[] = {-1, 0, 1};
    const int rows = 3 * kImages;
    std::vector<int32_t> plan(rows * row_words(int(d.chains), int(d.depth), d.wave_strength != 0));
    const SampleArgs args{d, index, &epoch, 0, kImages, 11, views, 3, plan.data()};
    require_success(prime_sample_cpu(&args));
    print_hash(c.name + ", plan", plan);
    for (const DType in : {DType::u8, DType::f16, DType::f32}) print_images(c, plan, rows, in, DType::f32);
    for (const DType out : {DType::u8, DType::f16, DType::bf16}) print_images(c, plan, rows, DType::f32, out);
  }
}
