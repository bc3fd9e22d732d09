// Spectral: a random filter (docs/METHOD.md, section Spectral).
#pragma once
#include "slot.h"

namespace prime {

struct Spectral {
  static constexpr bool kPointwise = false, kTable = false, kParameters = true;
  PRIME_HD static bool valid(Slot, const PlanShape&) { return true; }
  PRIME_HD static Slot draw(const Distributions& d, const Block<uint32_t>& words) {
    return {kSpectral, uniform(words.y) * static_cast<float>(d.spectral_std_max), 0, 0};
  }
};

}  // namespace prime
