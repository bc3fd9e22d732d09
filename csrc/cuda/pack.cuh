// Packs input images: see pixels.cuh.
#pragma once
#include "access.cuh"
#include "input.cuh"
#include "pixels.cuh"

namespace prime {

// How images are read: pairs of bytes, and other values one by one.
inline Access reading_of(const InputImages& in, int channels, int width) {
  return in.type == DType::u8 ? access_to(in.values, 1, in.strides, channels, width) : Access::single;
}

struct PackParams {
  InputImages input;
  Access reading;
  ImageShape shape;
  int blocks;    // that pack an image: two pixels of each of kRows rows a thread, so that a warp writes whole lines
  void* packed;  // [images, height, pitch] pixels
  BadPixels* bad;
};

// Adds values of two pixels in each of some rows that are no pixels to `bad`; rarely run.
template <int kC>
static __device__ void add_bad(const PackParams& p, int64_t from, int x, int rows) {
  const Strides s = p.input.strides;
  BadPixels bad{};
#pragma unroll 1
  for (int i = 0; i < 2 * kC * rows; ++i) {
    const int row = i / (2 * kC), column = x + i / kC % 2, c = i % kC;
    if (column >= p.shape.width) continue;
    const float v = load_unchecked<true>(p.input, from + row * s.h + c * s.c + column * s.w), pixel = checked(v);
    if (pixel != pixel) bad.add(v);
  }
  atomicAdd(&p.bad->values, bad.values);
  atomicMax(&p.bad->any_nan, bad.any_nan);
  atomicMax(&p.bad->below, bad.below), atomicMax(&p.bad->above, bad.above);
}

// Two pixels, whose bytes come two at a time, from planes or from interleaved pixels.
template <int kC>
__device__ __forceinline__ Pair<kC> encode_bytes(const uint32_t (&two)[kC], bool planes) {
  const auto codes = [](uint32_t bytes, uint32_t select, uint32_t zero) {
    return zero + (__byte_perm(bytes, 0, select) << 7);
  };
  constexpr uint32_t kFirstTwo = 0x4140, kLastTwo = 0x4342, kThird = 0x4442;                 // 4: zero
  const auto side_by_side = [&](int i) { return __byte_perm(two[i], two[i + 1], 0x5140); };  // of planes i and i + 1
  if constexpr (kC == 1) {
    return codes(two[0], kFirstTwo, kBlack);
  } else if constexpr (kC == 2) {
    const uint32_t all = planes ? side_by_side(0) : __byte_perm(two[0], two[1], 0x5410);
    return {codes(all, kFirstTwo, kBlack), codes(all, kLastTwo, kBlack)};
  } else if constexpr (kC == 3) {
    uint32_t left, right;  // in the low three bytes
    if (planes)
      left = __byte_perm(side_by_side(0), two[2], 0x0410), right = __byte_perm(side_by_side(0), two[2], 0x0532);
    else
      left = __byte_perm(two[0], two[1], 0x5410), right = __byte_perm(two[1], two[2], 0x0541);
    return {codes(left, kFirstTwo, kBlack), codes(left, kThird, kBlackBlue), codes(right, kFirstTwo, kBlack),
            codes(right, kThird, kBlackBlue)};
  } else {
    const uint32_t first = planes ? side_by_side(0) : __byte_perm(two[0], two[2], 0x5410),
                   last = planes ? side_by_side(2) : __byte_perm(two[1], two[3], 0x5410);
    return {codes(first, kFirstTwo, kBlack), codes(last, kFirstTwo, kBlack), codes(first, kLastTwo, kBlack),
            codes(last, kLastTwo, kBlack)};
  }
}

// Values that are no pixels have become NaN in load(); here they are 0, and the output gets its NaN from the image
// itself.
template <int kC>
static __device__ void pack(const PackParams& p, int image, int block) {
  const Strides s = p.input.strides;
  const int at = block * kBegin + threadIdx.x, strip = __umulhi(at, p.shape.per_pair);  // at / pairs
  const int x = 2 * (at - strip * p.shape.pairs), y = kRows * strip, rows = min(kRows, p.shape.height - y);
  if (rows <= 0) return;
  const int64_t from = image * s.n + y * s.h;
  Pixel<kC>* out = static_cast<Pixel<kC>*>(p.packed) + image * p.shape.pixels;
  const auto write = [&](int row, Pair<kC> pair) {
    *reinterpret_cast<Pair<kC>*>(out + static_cast<unsigned>((y + row) * p.shape.pitch + x)) = pair;
  };
  if (p.reading == Access::single) {
    bool bad = false;
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
      Two<kC> v = {};
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (x + i < p.shape.width)
#pragma unroll
          for (int c = 0; c < kC; ++c) {
            v[i][c] = load<true>(p.input, from + row * s.h + c * s.c + (x + i) * s.w);
            bad |= v[i][c] != v[i][c];
            v[i][c] = __saturatef(v[i][c]);
          }
      write(row, encode<kC>(v));
    }
    if (bad) add_bad<kC>(p, from, x, rows);
    return;
  }
  const bool planes = p.reading == Access::planes;
  const int64_t pixel = kC == 3 ? 3 : s.w;
  const uint8_t* bytes = static_cast<const uint8_t*>(p.input.values) + from + (planes ? x : pixel * x);
  uint32_t two[kRows][kC];  // all are asked for at once
#pragma unroll
  for (int row = 0; row < kRows; ++row, bytes += s.h)
#pragma unroll
    for (int i = 0; i < kC; ++i) {
      const int64_t next = planes ? i * s.c : kC == 3 ? 2 * i : i * 2 / kC * pixel + i * 2 % kC;
      two[row][i] = row < rows ? __ldg(reinterpret_cast<const uint16_t*>(bytes + next)) : 0;
    }
#pragma unroll
  for (int row = 0; row < kRows; ++row)
    if (row < rows) write(row, encode_bytes<kC>(two[row], planes));
}

}  // namespace prime
