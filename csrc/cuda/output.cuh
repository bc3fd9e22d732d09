// The sums of the mix, and how they are normalized and written.
#pragma once
#include <cuda_bf16.h>

#include "pixels.cuh"

namespace prime {

// How the output is written: pairs of neighboring values where addresses allow it.
enum class Writing { scalar, planes, pixels };

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
struct Mix {
  float4 head[kRows][kThreads];  // four of a row's six values,
  float2 tail[kRows][kThreads];  // and two
  __device__ __forceinline__ void set(int r, int thread, const Two& v) {
    head[r][thread] = {v[0][0], v[0][1], v[0][2], v[1][0]}, tail[r][thread] = {v[1][1], v[1][2]};
  }
  __device__ __forceinline__ void get(Two& v, int r, int thread) const {
    const float4 four = head[r][thread];
    const float2 two = tail[r][thread];
    v[0][0] = four.x, v[0][1] = four.y, v[0][2] = four.z, v[1][0] = four.w, v[1][1] = two.x, v[1][2] = two.y;
  }
  // Value i of row 0, and how far it is to that of the next row.
  __device__ __forceinline__ const float* first(int i, int thread, int& step) const {
    step = (i < 4 ? 4 : 2) * kThreads;
    return i < 4 ? reinterpret_cast<const float*>(head) + 4 * thread + i
                 : reinterpret_cast<const float*>(tail) + 2 * thread + i - 4;
  }
};

// The chunk's images in the output. Of fewer than kTogether channels the last are not written.
struct OutputImages {
  void* values;  // [views, batch, channels, height, width], from the chunk's first image on
  DType type;
  Writing writing;
  Strides strides;
  int64_t batch;            // images of the whole batch
  const uint8_t* flip;      // [images] or null; not 0: mirrored left to right
  float mean[3], scale[3];  // out = (y - mean) * scale, per channel
};

struct Normal {  // (x - mean) * scale
  float scale[3], offset[3];
  __device__ __forceinline__ explicit Normal(const OutputImages& out) {
#pragma unroll
    for (int c = 0; c < 3; ++c) scale[c] = out.scale[c], offset[c] = -out.mean[c] * out.scale[c];
  }
  __device__ __forceinline__ float operator()(float x, int c) const { return fmaf(x, scale[c], offset[c]); }
};

// Writes this thread's pixels into planes.
template <DType kType, bool kFlip, class Has>
__device__ __forceinline__ void write_planes(const Mix& mix, const OutputImages& out, const ImageShape& shape, Place o,
                                             int64_t offset, Has has) {
  const Strides s = out.strides;
  const Normal normal(out);
  using Value = typename Stored<kType>::Value;
  Value* to[3];
#pragma unroll
  for (int c = 0; c < 3; ++c)
    to[c] = static_cast<Value*>(out.values) + offset + o.y * s.h + c * s.c + (kFlip ? shape.width - 2 - o.x : o.x);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= shape.height - o.y) break;
    Two v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      if (!has(c)) break;
      const float left = normal(v[0][c], c), right = normal(v[1][c], c);
      store_two<kType>(to[c], kFlip ? right : left, kFlip ? left : right);
      to[c] += s.h;
    }
  }
}

// Writes this thread's pixels one by one.
template <DType kType, class Has>
__device__ __forceinline__ void write_values(const Mix& mix, const OutputImages& out, const ImageShape& shape, Place o,
                                             int64_t offset, bool flip, Has has) {
  const Strides s = out.strides;
  const Normal normal(out);
  using Value = typename Stored<kType>::Value;
#pragma unroll 1
  for (int r = 0; r < kRows && r < shape.height - o.y; ++r) {
    Two v;
    mix.get(v, r, threadIdx.x);
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      const int x = o.x + i / 3, c = i % 3;
      if (x < shape.width && has(c))
        static_cast<Value*>(out.values)[offset + (o.y + r) * s.h + c * s.c + (flip ? shape.width - 1 - x : x) * s.w] =
            stored<kType>(normal(v[i / 3][c], c));
    }
  }
}

// Writes the block's interleaved pixels: two neighboring values a thread, neighboring threads side by side.
template <DType kType>
__device__ __forceinline__ void write_pixels(const Mix& mix, const OutputImages& out, const ImageShape& shape,
                                             int64_t offset, bool flip) {
  using Value = typename Stored<kType>::Value;
  __syncthreads();
#pragma unroll 1
  for (int at = threadIdx.x; at < 3 * kThreads; at += kThreads) {
    const int thread = at / 3, first = at % 3 * 2, second = first + 1;  // of six values; flipped, the right pixel leads
    const Place o(shape, thread);
    const int one = flip ? (first + 3) % 6 : first, other = flip ? (second + 3) % 6 : second;
    int step_one, step_other;
    const float *from_one = mix.first(one, thread, step_one), *from_other = mix.first(other, thread, step_other);
    const float scale_one = out.scale[one % 3], scale_other = out.scale[other % 3];
    const float add_one = -out.mean[one % 3] * scale_one, add_other = -out.mean[other % 3] * scale_other;
    Value* to = static_cast<Value*>(out.values) + offset + o.y * out.strides.h +
                (3 * (flip ? shape.width - 2 - o.x : o.x) + first);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= shape.height - o.y) break;
      store_two<kType>(to, fmaf(*from_one, scale_one, add_one), fmaf(*from_other, scale_other, add_other));
      from_one += step_one, from_other += step_other, to += out.strides.h;
    }
  }
  __syncthreads();
}

// has(c): the images have channel c.
template <DType kType, class Has>
__device__ __forceinline__ void write(const Mix& mix, const OutputImages& out, const ImageShape& shape, Place o,
                                      int64_t offset, bool flip, Has has) {
  if (out.writing == Writing::planes)
    flip ? write_planes<kType, true>(mix, out, shape, o, offset, has)
         : write_planes<kType, false>(mix, out, shape, o, offset, has);
  else if (out.writing == Writing::pixels)
    write_pixels<kType>(mix, out, shape, offset, flip);
  else
    write_values<kType>(mix, out, shape, o, offset, flip, has);
}

}  // namespace prime
