// All primitives. To change what one does, change its header here (or in csrc/cuda, where its header has faster forms)
// and prime_dali/reference.py; tests/test_primitives.py says whether they agree.
#pragma once
#include "color.h"
#include "noise.h"
#include "spatial.h"
#include "spectral.h"

namespace prime {

// Calls f with the type of a primitive, Spectral{} for kSpectral and so on. Of the identity and of what is no primitive
// f is not asked: the result is false, 0 or nothing.
template <class F>
PRIME_HD auto visit(int primitive, F f) -> decltype(f(Spectral{})) {
  switch (primitive) {
#define PRIMITIVE(Type, name, ...) \
  case k##Type: return f(Type{});
    PRIME_PRIMITIVES(PRIMITIVE)
#undef PRIMITIVE
  }
  return decltype(f(Spectral{}))();
}

// Plans can be edited by hand. What no draw could have made is not run: on the CPU the plan is refused (check.h); on a
// GPU, which nobody waits for, pixels become NaN, and bytes 0.
PRIME_HD bool valid_strength(float strength) { return strength >= 0.f && strength <= kMaxStrength; }
PRIME_HD bool valid(Slot s, const PlanShape& shape) {
  if (s.primitive == kIdentity) return true;
  if (!valid_strength(s.strength)) return false;
  return visit(s.primitive, [&](auto primitive) { return decltype(primitive)::valid(s, shape); });
}

// Each image draws the primitive. What the primitive draws, each image draws as well, or, with batch_draws, the batch
// does, once for all images and chains: strength, cut, band and displacement fields. Its words are where those of a
// chain that no plan has would be, and each primitive has its own.
PRIME_HD Slot draw_slot(const Distributions& d, const Keys& keys, int chain, int j) {
  const int enabled[] = {
#define PRIMITIVE(Type, name, ...) d.name != 0,
      PRIME_PRIMITIVES(PRIMITIVE)
#undef PRIMITIVE
  };
  int primitives = 0;
  for (int one : enabled) primitives += one;
  const int options = primitives + (d.identity != 0);
  const Block<uint32_t> own = keys.own.block<uint32_t>(0u, chain, j, Purpose::draw);
  int pick = options ? uniform_int(own.x, options) : 0;
  if (pick >= primitives) return {kIdentity, 0.f, 0, 0};
  int primitive = 0;
  for (;; ++primitive)
    if (enabled[primitive] && pick-- == 0) break;
  const bool shared = d.batch_draws != 0;
  const Block<uint32_t> words = shared ? keys.batch.block<uint32_t>(0u, kMaxChains + primitive, j, Purpose::draw) : own;
  Slot s = visit(primitive + 1, [&](auto type) { return decltype(type)::draw(d, words); });
  s.strength *= static_cast<float>(d.alpha);
  return s;
}

}  // namespace prime
