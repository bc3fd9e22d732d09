// Spectral, color, noise and waves on one planar float32 image; spatial has a file of its own.
#include <vector>

#include "cpu.h"
#include "lanes.h"

namespace prime {

void PRIME_INSTRUCTIONS::normal_run(float* out, int n, Key key, uint32_t base, int chain, int slot, Purpose purpose,
                                    int channel) {
  const int blocks = run_blocks(n);
  const UintLanes ramp = UintLanes::ramp();
  for (int q = 0; q < blocks; q += kLanes) {
    const auto z = normals(key.block(ramp + UintLanes(base + q), chain, slot, purpose, channel));
    const int count = blocks - q < kLanes ? blocks - q : kLanes;
    for (int k = 0; k < count; ++k)
      for (int i = 0; i < 4; ++i) out[4 * (q + k) + i] = z.z[i].v[k];
  }
}

void run_slot(Spectral, const SlotRun& run) {
  const auto [src, dst, g, s, filter, key, chain, j, scratch] = run;
  const int taps = filter * filter, radius = filter / 2;
  std::vector<float> w(run_blocks(taps) * 4);
  normal_run(w.data(), taps, key, 0, chain, j, Purpose::filter);
  for (int t = 0; t < taps; ++t) w[t] *= s.strength;
  w[taps / 2] += 1.f;
  for (int row = 0; row < g.channels * g.height; ++row) {
    const int y = row % g.height;
    float* __restrict out = dst + static_cast<int64_t>(row) * g.width;
    for (int x = 0; x < g.width; ++x) out[x] = 0.f;
    for (int ky = 0; ky < filter; ++ky) {
      const int offset_y = ky - radius;
      if (y + offset_y < 0 || y + offset_y >= g.height) continue;
      const float* __restrict in = src + static_cast<int64_t>(row + offset_y) * g.width;
      for (int kx = 0; kx < filter; ++kx) {
        const int offset_x = kx - radius;
        const int begin = offset_x < 0 ? -offset_x : 0, end = offset_x > 0 ? g.width - offset_x : g.width;
        const float tap = w[ky * filter + kx];
        for (int x = begin; x < end; ++x) out[x] = fma(tap, in[x + offset_x], out[x]);
      }
    }
    for (int x = 0; x < g.width; ++x) out[x] = clip01(out[x]);
  }
}

void run_slot(Color, const SlotRun& run) {
  const auto [src, dst, g, s, filter, key, chain, j, scratch] = run;
  const int count = s.last - s.first + 1;
  std::vector<float> b(run_blocks(count) * 4);
  for (int channel = 0; channel < g.channels; ++channel) {
    normal_run(b.data(), count, key, 0, chain, j, Purpose::color, channel);
    for (int k = 0; k < count; ++k) b[k] *= s.strength;
    const float* in = src + channel * g.plane();
    float* out = dst + channel * g.plane();
    int64_t p = 0;
    for (; p + 2 * kLanes <= g.plane(); p += 2 * kLanes) {
      const Two<Lanes> pixels(Lanes::load(in + p), Lanes::load(in + p + kLanes));
      const Two<Lanes> mapped = color_map(pixels, b.data(), s.first, count);
      mapped.a.store(out + p);
      mapped.b.store(out + p + kLanes);
    }
    for (; p < g.plane(); ++p) out[p] = color_map(in[p], b.data(), s.first, count);
  }
}

void run_slot(Noise, const SlotRun& run) {
  const auto [src, dst, g, s, filter, key, chain, j, scratch] = run;
  std::vector<float> z(run_blocks(g.width) * 4);
  for (int row = 0; row < g.channels * g.height; ++row) {
    normal_run(z.data(), g.width, key, static_cast<uint32_t>(row) * kRun, chain, j, Purpose::noise);
    const float* in = src + static_cast<int64_t>(row) * g.width;
    float* out = dst + static_cast<int64_t>(row) * g.width;
    for (int x = 0; x < g.width; ++x) out[x] = clip01(fma(s.strength, z[x], in[x]));
  }
}

void add_waves(float* image, const Geometry& g, Key key, float strength) {
  const Lanes ramp = to_float(as_int(UintLanes::ramp()));
  for (int channel = 0; channel < g.channels; ++channel) {
    const Wave wave = draw_wave(key, channel, strength, g.height, g.width);
    for (int y = 0; y < g.height; ++y) {
      float* row = image + channel * g.plane() + static_cast<int64_t>(y) * g.width;
      const float phase = wave_phase(wave, from_center(y, g.height));
      int x = 0;
      for (; x + kLanes <= g.width; x += kLanes)
        with_wave(Lanes::load(row + x), wave, phase, ramp + Lanes(from_center(x, g.width))).store(row + x);
      for (; x < g.width; ++x) row[x] = with_wave(row[x], wave, phase, from_center(x, g.width));
    }
  }
}

}  // namespace prime
