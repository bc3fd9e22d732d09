// Values of the caller's images as pixels.
#pragma once
#include "pixels.cuh"

namespace prime {

__device__ __forceinline__ float load_unchecked(const ApplyArgs& a, int64_t at) {
  switch (a.in_type) {
    case DType::u8: return byte_value(static_cast<const uint8_t*>(a.in)[at]);
    case DType::f16: return __half2float(static_cast<const __half*>(a.in)[at]);
    case DType::bf16: return bf16_to_float(static_cast<const uint16_t*>(a.in)[at]);
    default: return static_cast<const float*>(a.in)[at];
  }
}
__device__ __forceinline__ float load(const ApplyArgs& a, int64_t at) {
  const float v = load_unchecked(a, at);
  return a.in_type == DType::u8 ? v : checked(v);
}

}  // namespace prime
