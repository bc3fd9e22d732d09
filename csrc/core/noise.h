// Noise: x + strength z, clipped, with one normal a value (docs/METHOD.md, section Noise).
#pragma once
#include "slot.h"

namespace prime {

struct Noise {
  static constexpr bool kPointwise = true, kTable = false, kParameters = false;
  PRIME_HD static bool valid(Slot, const PlanShape&) { return true; }
  PRIME_HD static Slot draw(const Distributions& d, const Block<uint32_t>&) {
    return {kNoise, static_cast<float>(d.noise_std), 0, 0};
  }
};

}  // namespace prime
