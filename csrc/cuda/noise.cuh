// The noise primitive: x + strength z, clipped, with one normal a value.
#pragma once
#include "device.cuh"
#include "views.cuh"

namespace prime {

// Adds noise to two neighboring values of one channel, which begin at column x of row y. Four columns share a block of
// random numbers.
__device__ __forceinline__ void add_noise(float& left, float& right, const Step& s, Stream stream, int chain,
                                          int height, int c, int x, int y) {
  const uint32_t counter = static_cast<uint32_t>(c * height + y) * kRun + x / 4;
  const auto z = normals(stream.block<uint32_t>(counter, chain, s.slot, Purpose::noise));
  left = __saturatef(fmaf(s.strength, x % 4 ? z.z[2] : z.z[0], left));
  right = __saturatef(fmaf(s.strength, x % 4 ? z.z[3] : z.z[1], right));
}

}  // namespace prime
