// Packs input images: see pixels.cuh.
#pragma once
#include "input.cuh"
#include "pixels.cuh"

namespace prime {

// How images are read: by words of four bytes where addresses allow it, from planes or from interleaved pixels.
enum class Reading { single, planes, pixels };

inline Reading reading_of(const InputImages& in, int channels, int width) {
  const Strides s = in.strides;
  if (in.type != DType::u8 || width % 4 || s.n % 4 || s.h % 4 || reinterpret_cast<uintptr_t>(in.values) % 4)
    return Reading::single;
  if (s.w == 1 && (channels == 1 || s.c % 4 == 0)) return Reading::planes;
  return s.c == 1 && (channels == 4 ? s.w % 4 == 0 : s.w == channels) ? Reading::pixels : Reading::single;
}

struct PackParams {
  InputImages input;
  Reading reading;
  ImageShape shape;
  int blocks;         // that pack an image: four pixels of each of two rows a thread
  int quads;          // of pixels in a row of the workspace
  uint32_t per_quad;  // division_word(quads)
  void* packed;       // [images, height, pitch] pixels
  BadPixels* bad;
};

// Adds values of four pixels in each of some rows that are no pixels to `bad`; rarely run.
template <int kC>
static __device__ void add_bad(const PackParams& p, int64_t from, int x, int rows) {
  const Strides s = p.input.strides;
  BadPixels bad{};
#pragma unroll 1
  for (int i = 0; i < 4 * kC * rows; ++i) {
    const int row = i / (4 * kC), column = x + i / kC % 4, c = i % kC;
    if (column >= p.shape.width) continue;
    const float v = load_unchecked<true>(p.input, from + row * s.h + c * s.c + column * s.w), pixel = checked(v);
    if (pixel != pixel) bad.add(v);
  }
  atomicAdd(&p.bad->values, bad.values);
  atomicMax(&p.bad->any_nan, bad.any_nan);
  atomicMax(&p.bad->below, bad.below), atomicMax(&p.bad->above, bad.above);
}

// Four pixels of words of bytes, from planes or from interleaved pixels.
template <int kC>
__device__ __forceinline__ void encode_bytes(Pair<kC> (&out)[2], const uint32_t (&word)[kC], bool planes) {
  const auto codes = [](uint32_t bytes, uint32_t select, uint32_t zero) {
    return zero + (__byte_perm(bytes, 0, select) << 7);
  };
  constexpr uint32_t kFirstTwo = 0x4140, kLastTwo = 0x4342, kThird = 0x4442;  // 4: zero
  if constexpr (kC == 3) {
    const auto [a, b, c] = word;
    uint32_t three[4];  // a pixel in the low three bytes
    if (planes) {
      const uint32_t left = __byte_perm(a, b, 0x5140), right = __byte_perm(a, b, 0x7362);
      three[0] = __byte_perm(left, c, 0x0410), three[1] = __byte_perm(left, c, 0x0532);
      three[2] = __byte_perm(right, c, 0x0610), three[3] = __byte_perm(right, c, 0x0732);
    } else {
      three[0] = a, three[1] = __byte_perm(a, b, 0x0543), three[2] = __byte_perm(b, c, 0x0432), three[3] = c >> 8;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      out[i] = {codes(three[2 * i], kFirstTwo, kBlack), codes(three[2 * i], kThird, kBlackBlue),
                codes(three[2 * i + 1], kFirstTwo, kBlack), codes(three[2 * i + 1], kThird, kBlackBlue)};
  } else {
    uint32_t four[kC];  // bytes in their order in the workspace
#pragma unroll
    for (int i = 0; i < kC; ++i) four[i] = word[i];
    if constexpr (kC == 2)
      if (planes) four[0] = __byte_perm(word[0], word[1], 0x5140), four[1] = __byte_perm(word[0], word[1], 0x7362);
    if constexpr (kC == 4)
      if (planes)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t select = i / 2 ? 0x7362 : 0x5140;
          four[i] = __byte_perm(__byte_perm(word[0], word[1], select), __byte_perm(word[2], word[3], select),
                                i % 2 ? 0x7632 : 0x5410);
        }
    uint32_t all[2 * kC];
#pragma unroll
    for (int i = 0; i < 2 * kC; ++i) all[i] = codes(four[i / 2], i % 2 ? kLastTwo : kFirstTwo, kBlack);
    memcpy(out, all, sizeof all);
  }
}

// Values that are no pixels have become NaN in load(); here they are 0, and the output gets its NaN from the image
// itself.
template <int kC>
static __device__ void pack(const PackParams& p, int image, int block) {
  const Strides s = p.input.strides;
  const int at = block * kBegin + threadIdx.x, strip = __umulhi(at, p.per_quad);  // at / quads
  const int x = 4 * (at - strip * p.quads), y = 2 * strip;
  if (y >= p.shape.height) return;
  const bool two = y + 1 < p.shape.height;
  const int64_t from = image * s.n + y * s.h;
  const auto write = [&](int row, const Pair<kC>(&pair)[2]) {
    Pair<kC>* out = reinterpret_cast<Pair<kC>*>(static_cast<Pixel<kC>*>(p.packed) + image * p.shape.pixels +
                                                static_cast<unsigned>((y + row) * p.shape.pitch + x));
    out[0] = pair[0], out[1] = pair[1];
  };
  Pair<kC> pair[2];
  if (p.reading == Reading::single) {
    bool bad = false;
#pragma unroll 1
    for (int row = 0; row <= two; ++row) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        Two<kC> v = {};
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (x + 2 * k + i < p.shape.width)
#pragma unroll
            for (int c = 0; c < kC; ++c) {
              v[i][c] = load<true>(p.input, from + row * s.h + c * s.c + (x + 2 * k + i) * s.w);
              bad |= v[i][c] != v[i][c];
              v[i][c] = __saturatef(v[i][c]);
            }
        pair[k] = encode<kC>(v);
      }
      write(row, pair);
    }
    if (bad) add_bad<kC>(p, from, x, 1 + two);
    return;
  }
  const bool planes = p.reading == Reading::planes;
  const int64_t pixel = kC == 4 ? s.w : kC, next = planes ? s.c : kC == 4 ? s.w : 4;
  const uint8_t* bytes = static_cast<const uint8_t*>(p.input.values) + from + (planes ? x : pixel * x);
  uint32_t word[2][kC];  // all are asked for at once
#pragma unroll
  for (int row = 0; row < 2; ++row, bytes += s.h)
#pragma unroll
    for (int i = 0; i < kC; ++i)
      word[row][i] = row == 0 || two ? __ldg(reinterpret_cast<const uint32_t*>(bytes + i * next)) : 0;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    encode_bytes<kC>(pair, word[row], planes);
    if (row == 0 || two) write(row, pair);
  }
}

}  // namespace prime
