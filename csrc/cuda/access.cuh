// How kernels read and write the caller's images, whose strides may be any.
#pragma once
#include "../core/image.h"

namespace prime {

// Value by value; or pairs of neighboring values where addresses allow it, of planes or of interleaved pixels.
enum class Access { single, planes, pixels };

// For images whose values have `bytes` each.
inline Access access_to(const void* values, int64_t bytes, Strides s, int channels, int width) {
  if (width % 2 || s.n % 2 || s.h % 2 || reinterpret_cast<uintptr_t>(values) % (2 * bytes)) return Access::single;
  if (s.w == 1 && (channels == 1 || s.c % 2 == 0)) return Access::planes;
  return s.c == 1 && (channels == 3 ? s.w == 3 : channels != 1 && s.w % 2 == 0) ? Access::pixels : Access::single;
}

}  // namespace prime
