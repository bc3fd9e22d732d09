// Planar waves, added after the mix, one to every channel (docs/METHOD.md, section Planar waves).
#pragma once
#include "random.h"

namespace prime {

// amplitude sin(pi (down y + right x - 1/4)) of one channel; y and x in pixels from the center of the image.
struct Wave {
  float amplitude, down, right;
};

// Of the row with this key, of which `strength` is the mean one.
PRIME_HD Wave draw_wave(Key key, int channel, float strength, int height, int width) {
  const Block<uint32_t> words = key.block<uint32_t>(0u, 0, 0, Purpose::wave, channel);
  const float side = sqrt(static_cast<float>(height * width));
  const float frequency = static_cast<float>(1 + uniform_int(words.x, static_cast<int>(side)));
  const SinCos<float> direction = sincospi(2.f * uniform(words.y));
  const float half_turns = 2.f * frequency / (side - 1.f);  // a pixel
  const float drawn = -log(uniform(words.z)) * strength;
  return {drawn * 0.0441941738f, half_turns * direction.cos, half_turns * direction.sin};  // sqrt(2) / 32
}

// The wave's phase at the center of a row, in half turns, and what it adds at x pixels from there.
PRIME_HD float wave_phase(const Wave& wave, float y) { return fma(wave.down, y, -0.25f); }
template <class F>
PRIME_HD F with_wave(F value, const Wave& wave, float phase, F x) {
  return clip01(fma(F(wave.amplitude), sincospi(fma(F(wave.right), x, F(phase))).sin, value));
}

PRIME_HD float from_center(int at, int side) { return static_cast<float>(2 * at - (side - 1)) * 0.5f; }

}  // namespace prime
