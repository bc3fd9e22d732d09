// The sums of the mix, and how they are normalized and written.
#pragma once
#include <cuda_bf16.h>

#include "access.cuh"
#include "pixels.cuh"

namespace prime {

// The type of a value in memory.
template <DType kType>
struct Stored {
  using Value = float;
};
template <>
struct Stored<DType::u8> {
  using Value = uint8_t;
};
template <>
struct Stored<DType::u16> {
  using Value = uint16_t;
};
template <>
struct Stored<DType::f16> {
  using Value = __half;
};
template <>
struct Stored<DType::bf16> {
  using Value = uint16_t;
};

template <DType kType>
__device__ __forceinline__ typename Stored<kType>::Value stored(float y) {
  if constexpr (kType == DType::u8)
    return float_to_u8(y);
  else if constexpr (kType == DType::u16)
    return float_to_u16(y);
  else if constexpr (kType == DType::f16)
    return __float2half_rn(y);
  else if constexpr (kType == DType::bf16)
    return float_to_bf16(y);
  else
    return y;
}

// Two neighboring values, where addresses are multiples of two.
template <DType kType>
__device__ __forceinline__ void store_two(typename Stored<kType>::Value* to, float y0, float y1) {
  if constexpr (kType == DType::u8)
    *reinterpret_cast<uchar2*>(to) = {float_to_u8(y0), float_to_u8(y1)};
  else if constexpr (kType == DType::u16)
    *reinterpret_cast<ushort2*>(to) = {float_to_u16(y0), float_to_u16(y1)};
  else if constexpr (kType == DType::f16)
    *reinterpret_cast<__half2*>(to) = __floats2half2_rn(y0, y1);
  else if constexpr (kType == DType::bf16)
    *reinterpret_cast<ushort2*>(to) = {float_to_bf16(y0), float_to_bf16(y1)};
  else
    *reinterpret_cast<float2*>(to) = {y0, y1};
}

// The sums of a block's pixels, a thread's in its own column: registers are scarcer.
template <int kC>
struct Mix {
  static constexpr int kFours = kC / 2, kTwos = kC % 2;  // of a row's 2 kC values; arrays of none take no room
  float4 fours[kFours][kRows][kThreads];
  float2 twos[kTwos][kRows][kThreads];
  __device__ __forceinline__ void set(int r, int thread, const Two<kC>& v) {
    const auto value = [&](int i) { return v[i / kC][i % kC]; };
#pragma unroll
    for (int i = 0; i < kFours; ++i)
      fours[i][r][thread] = {value(4 * i), value(4 * i + 1), value(4 * i + 2), value(4 * i + 3)};
    if constexpr (kTwos) twos[0][r][thread] = {value(4 * kFours), value(4 * kFours + 1)};
  }
  __device__ __forceinline__ void get(Two<kC>& v, int r, int thread) const {
    const auto value = [&](int i) -> float& { return v[i / kC][i % kC]; };
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const float4 four = fours[i][r][thread];
      value(4 * i) = four.x, value(4 * i + 1) = four.y, value(4 * i + 2) = four.z, value(4 * i + 3) = four.w;
    }
    if constexpr (kTwos) {
      const float2 two = twos[0][r][thread];
      value(4 * kFours) = two.x, value(4 * kFours + 1) = two.y;
    }
  }
  // Value i of row 0, and how far it is to that of the next row.
  __device__ __forceinline__ const float* first(int i, int thread, int& step) const {
    const bool of_two = kTwos && i >= 4 * kFours;
    step = (of_two ? 2 : 4) * kThreads;
    if (of_two) return reinterpret_cast<const float*>(twos) + 2 * thread + i - 4 * kFours;
    const int four = kFours > 1 ? i / 4 : 0;
    return reinterpret_cast<const float*>(fours[four]) + 4 * thread + i - 4 * four;
  }
};

// The chunk's images in the output, of the channels that run together.
struct OutputImages {
  void* values;  // [views, batch, channels, height, width], from the chunk's first image on
  DType type;
  Access writing;
  Strides strides;
  int64_t batch;        // images of the whole batch
  const uint8_t* flip;  // [images] or null; not 0: mirrored left to right
  struct {
    float mean, scale;
  } channel[kTogether];  // out = (y - mean) * scale
};

template <int kC>
struct Normal {  // (x - mean) * scale
  float scale[kC], offset[kC];
  __device__ __forceinline__ explicit Normal(const OutputImages& out) {
#pragma unroll
    for (int c = 0; c < kC; ++c) scale[c] = out.channel[c].scale, offset[c] = -out.channel[c].mean * scale[c];
  }
  __device__ __forceinline__ float operator()(float x, int c) const { return fmaf(x, scale[c], offset[c]); }
};

// Writes this thread's pixels into planes.
template <DType kType, bool kFlip, int kC>
__device__ __forceinline__ void write_planes(const Mix<kC>& mix, const OutputImages& out, const ImageShape& shape,
                                             Place o, int64_t offset) {
  const Strides s = out.strides;
  const Normal<kC> normal(out);
  using Value = typename Stored<kType>::Value;
  Value* to[kC];
#pragma unroll
  for (int c = 0; c < kC; ++c)
    to[c] = static_cast<Value*>(out.values) + offset + o.y * s.h + c * s.c + (kFlip ? shape.width - 2 - o.x : o.x);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= shape.height - o.y) break;
    Two<kC> v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const float left = normal(v[0][c], c), right = normal(v[1][c], c);
      store_two<kType>(to[c], kFlip ? right : left, kFlip ? left : right);
      to[c] += s.h;
    }
  }
}

// Writes this thread's pixels one by one.
template <DType kType, int kC>
__device__ __forceinline__ void write_values(const Mix<kC>& mix, const OutputImages& out, const ImageShape& shape,
                                             Place o, int64_t offset, bool flip) {
  const Strides s = out.strides;
  const Normal<kC> normal(out);
  using Value = typename Stored<kType>::Value;
#pragma unroll 1
  for (int r = 0; r < kRows && r < shape.height - o.y; ++r) {
    Two<kC> v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int i = 0; i < 2 * kC; ++i) {
      const int x = o.x + i / kC, c = i % kC;
      if (x < shape.width)
        static_cast<Value*>(out.values)[offset + (o.y + r) * s.h + c * s.c + (flip ? shape.width - 1 - x : x) * s.w] =
            stored<kType>(normal(v[i / kC][c], c));
    }
  }
}

// Writes the block's interleaved pixels: two neighboring values a thread, neighboring threads side by side. Of an even
// number of channels there may be others between the pixels.
template <DType kType, int kC>
__device__ __forceinline__ void write_pixels(const Mix<kC>& mix, const OutputImages& out, const ImageShape& shape,
                                             int64_t offset, bool flip) {
  using Value = typename Stored<kType>::Value;
  __syncthreads();
#pragma unroll 1
  for (int at = threadIdx.x; at < kC * kThreads; at += kThreads) {
    // Of 2 kC values; flipped, those of the right pixel lead.
    const int thread = at / kC, first = at % kC * 2, second = first + 1;
    const Place o(shape, thread);
    const int one = flip ? (first + kC) % (2 * kC) : first, other = flip ? (second + kC) % (2 * kC) : second;
    int step_one, step_other;
    const float *from_one = mix.first(one, thread, step_one), *from_other = mix.first(other, thread, step_other);
    const float scale_one = out.channel[one % kC].scale, scale_other = out.channel[other % kC].scale;
    const float add_one = -out.channel[one % kC].mean * scale_one,
                add_other = -out.channel[other % kC].mean * scale_other;
    const int x = flip ? shape.width - 2 - o.x : o.x;
    Value* to = static_cast<Value*>(out.values) + offset + o.y * out.strides.h +
                (kC == 3 ? 3 * x + first : (x + first / kC) * out.strides.w + first % kC);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= shape.height - o.y) break;
      store_two<kType>(to, fmaf(*from_one, scale_one, add_one), fmaf(*from_other, scale_other, add_other));
      from_one += step_one, from_other += step_other, to += out.strides.h;
    }
  }
  __syncthreads();
}

template <DType kType, int kC>
__device__ __forceinline__ void write(const Mix<kC>& mix, const OutputImages& out, const ImageShape& shape, Place o,
                                      int64_t offset, bool flip) {
  if (out.writing == Access::planes)
    flip ? write_planes<kType, true>(mix, out, shape, o, offset)
         : write_planes<kType, false>(mix, out, shape, o, offset);
  else if (kC > 1 && out.writing == Access::pixels)  // of one channel they are planes
    write_pixels<kType>(mix, out, shape, offset, flip);
  else
    write_values<kType>(mix, out, shape, o, offset, flip);
}

}  // namespace prime
