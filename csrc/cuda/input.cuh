// Values of the caller's images as pixels.
#pragma once
#include "pixels.cuh"

namespace prime {

// [images, channels, height, width] of the chunk, of the channels that run together.
struct InputImages {
  const void* values;
  DType type;
  Strides strides;
};

// kWords: they may be uint16.
template <bool kWords>
__device__ __forceinline__ float load_unchecked(const InputImages& in, int64_t at) {
  if constexpr (kWords)
    if (in.type == DType::u16) return word_value(static_cast<const uint16_t*>(in.values)[at]);
  switch (in.type) {
    case DType::u8: return byte_value(static_cast<const uint8_t*>(in.values)[at]);
    case DType::f16: return __half2float(static_cast<const __half*>(in.values)[at]);
    case DType::bf16: return bf16_to_float(static_cast<const uint16_t*>(in.values)[at]);
    default: return static_cast<const float*>(in.values)[at];
  }
}
template <bool kWords>
__device__ __forceinline__ float load(const InputImages& in, int64_t at) {
  const float v = load_unchecked<kWords>(in, at);
  return in.type == DType::u8 ? v : checked(v);
}

}  // namespace prime
