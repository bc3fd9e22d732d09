// The noise primitive: x + strength z, clipped, with one normal a value.
#pragma once
#include "device.cuh"
#include "views.cuh"

namespace prime {

// Four columns share a block of random numbers.
__device__ __forceinline__ void evaluate(Noise, float& left, float& right, const StepPlace& at) {
  const uint32_t counter =
      static_cast<uint32_t>((at.step.first_channel + at.channel) * at.height + at.y) * kRun + at.x / 4;
  const auto z = normals(at.key.block<uint32_t>(counter, at.chain, at.step.slot, Purpose::noise));
  left = __saturatef(fmaf(at.step.strength, at.x % 4 ? z.z[2] : z.z[0], left));
  right = __saturatef(fmaf(at.step.strength, at.x % 4 ? z.z[3] : z.z[1], right));
}

}  // namespace prime
