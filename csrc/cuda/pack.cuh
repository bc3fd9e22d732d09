// Packs input images: 8 bytes a pixel, see pixels.cuh.
#pragma once
#include "input.cuh"
#include "pixels.cuh"

namespace prime {

// How images are read: by words of four bytes where addresses allow it, from planes or from interleaved pixels.
enum class Reading { single, planes, pixels };

inline Reading reading_of(const InputImages& in, int channels, int width) {
  const Strides s = in.strides;
  if (in.type != DType::u8 || channels != kTogether || width % 4 || s.n % 4 || s.h % 4 ||
      reinterpret_cast<uintptr_t>(in.values) % 4)
    return Reading::single;
  if (s.w == 1 && s.c % 4 == 0) return Reading::planes;
  return s.w == 3 && s.c == 1 ? Reading::pixels : Reading::single;
}

struct PackParams {
  InputImages input;
  Reading reading;
  ImageShape shape;
  int blocks;         // that pack an image: four pixels of each of two rows a thread
  int quads;          // of pixels in a row of the workspace
  uint32_t per_quad;  // division_word(quads)
  uint2* packed;      // [images, height, pitch]
  BadPixels* bad;
  int channels;  // that the images have; others of a pixel are black
};

// Adds values of four pixels in each of some rows that are no pixels to `bad`; rarely run.
static __device__ void add_bad(const PackParams& p, int64_t from, int x, int rows) {
  const Strides s = p.input.strides;
  BadPixels bad{};
#pragma unroll 1
  for (int i = 0; i < 12 * rows; ++i) {
    const int row = i / 12, column = x + i / 3 % 4, c = i % 3;
    if (column >= p.shape.width || c >= p.channels) continue;
    const float v = load_unchecked<true>(p.input, from + row * s.h + c * s.c + column * s.w), pixel = checked(v);
    if (pixel != pixel) bad.add(v);
  }
  atomicAdd(&p.bad->values, bad.values);
  atomicMax(&p.bad->any_nan, bad.any_nan);
  atomicMax(&p.bad->below, bad.below), atomicMax(&p.bad->above, bad.above);
}

// Values that are no pixels have become NaN in load(); here they are 0, and the output gets its NaN from the image
// itself.
static __device__ void pack(const PackParams& p, int image, int block) {
  const Strides s = p.input.strides;
  const int at = block * kBegin + threadIdx.x, strip = __umulhi(at, p.per_quad);  // at / quads
  const int x = 4 * (at - strip * p.quads), y = 2 * strip;
  if (y >= p.shape.height) return;
  const bool two = y + 1 < p.shape.height;
  const int64_t from = image * s.n + y * s.h;
  const auto write = [&](int row, const uint2(&pixel)[4]) {
    uint4* out = reinterpret_cast<uint4*>(p.packed + image * p.shape.pixels +
                                          static_cast<unsigned>((y + row) * p.shape.pitch + x));
    out[0] = {pixel[0].x, pixel[0].y, pixel[1].x, pixel[1].y};
    out[1] = {pixel[2].x, pixel[2].y, pixel[3].x, pixel[3].y};
  };
  uint2 pixel[4];
  if (p.reading == Reading::single) {
    bool bad = false;
#pragma unroll 1
    for (int row = 0; row <= two; ++row) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float v[3] = {};
        if (x + i < p.shape.width)
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            if (c >= p.channels) break;
            v[c] = load<true>(p.input, from + row * s.h + c * s.c + (x + i) * s.w);
            bad |= v[c] != v[c];
            v[c] = __saturatef(v[c]);
          }
        pixel[i] = encode(v);
      }
      write(row, pixel);
    }
    if (bad) add_bad(p, from, x, 1 + two);
    return;
  }
  const bool planes = p.reading == Reading::planes;
  const uint8_t* bytes = static_cast<const uint8_t*>(p.input.values) + from + (planes ? x : 3 * x);
  const int64_t next = planes ? s.c : 4;
  uint32_t word[2][3];  // all are asked for at once
#pragma unroll
  for (int row = 0; row < 2; ++row, bytes += s.h)
#pragma unroll
    for (int i = 0; i < 3; ++i)
      word[row][i] = row == 0 || two ? __ldg(reinterpret_cast<const uint32_t*>(bytes + i * next)) : 0;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const auto [a, b, c] = word[row];
    uint32_t three[4];  // a pixel in the low three bytes
    if (planes) {
      const uint32_t left = __byte_perm(a, b, 0x5140), right = __byte_perm(a, b, 0x7362);
      three[0] = __byte_perm(left, c, 0x0410), three[1] = __byte_perm(left, c, 0x0532);
      three[2] = __byte_perm(right, c, 0x0610), three[3] = __byte_perm(right, c, 0x0732);
    } else {
      three[0] = a, three[1] = __byte_perm(a, b, 0x0543), three[2] = __byte_perm(b, c, 0x0432), three[3] = c >> 8;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pixel[i] = {kBlack + (__byte_perm(three[i], 0, 0x4140) << 7),
                  kBlackBlue + (__byte_perm(three[i], 0, 0x4442) << 7)};
    if (row == 0 || two) write(row, pixel);
  }
}

}  // namespace prime
