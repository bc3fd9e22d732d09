// The coefficients B of a displacement field, drawn a lane at a time where the first product wants them.
#pragma once
#include "../device.cuh"
#include "../views.cuh"

namespace prime {

// normals() of core/random.h over kFactor, with the GPU's logarithm, sine, cosine and root, whose errors (5e-7) are far
// below half precision.
constexpr float kFactor = -1.17741002f;  // -sqrt(2 ln 2); shift_kernel puts it in
__device__ __forceinline__ Normals<float> fast_normals(Block<uint32_t> b) {
  const auto one_to_two = [](uint32_t word) { return from_bits(as_int(word >> 9 | 0x3f800000u)); };
  const auto radius = [&](uint32_t word) {
    return root(fabsf(binary_logarithm(one_to_two(word) - (1.f - 5.9604645e-8f))));  // of uniform(word)
  };
  const float pi = 3.14159265f;
  const auto angle = [&](uint32_t word) { return fmaf(2.f * pi, one_to_two(word), -3.f * pi); };
  const float r = radius(b.x), s = radius(b.z), u = angle(b.y), v = angle(b.w);
  return {{r * __cosf(u), r * __sinf(u), s * __cosf(v), s * __sinf(v)}};
}

// The sums of 1 / (i^2 + j^2) for modes b .. b + 3, term by term: a function of its own, because it is long and rarely
// run. All four side by side, for a kernel waits for its few blocks that run it.
static __device__ __noinline__ float4 folded_variances(int a, int b, float limit, int height, int width) {
  float variance[4] = {};
  for (int p = 0;; ++p) {
    const float i = static_cast<float>(alias(a, p, height - 1));
    bool inside = true;
    for (int q = 0; inside; ++q) {
      inside = false;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float j = static_cast<float>(alias(b + k, q, width - 1)), square = fmaf(i, i, j * j);
        if (square <= limit) variance[k] += reciprocal(square), inside = true;
      }
      if (q == 0 && !inside) return {variance[0], variance[1], variance[2], variance[3]};
    }
  }
}

// Standard deviation of B_ab in row a: the root of the sum of 1 / (i^2 + j^2) over the aliases i of a and j of b inside
// the disc i^2 + j^2 <= cut^2 + cut. Cuts up to 2 N on an axis of N intervals have two, a and 2 N - a, and need no
// loop. Squares are exact in float32.
struct FoldedStd {
  int a, height, width;
  bool few;
  float limit, near, far, period;
  float from, to;  // modes that have no alias inside the disc, and a little less than all of them
  __device__ FoldedStd(int a, int cut, int height, int width)
      : a(a),
        height(height),
        width(width),
        few(cut <= 2 * (height - 1) && cut <= 2 * (width - 1)),
        limit(static_cast<float>(cut * cut + cut)),
        near(static_cast<float>(a * a)),
        period(2.f * static_cast<float>(width - 1)) {
    const float i = 2.f * static_cast<float>(height - 1) - static_cast<float>(a);
    far = i * i;
    from = far <= limit ? root(limit - far) + 1.f : 0.f;
    to = period - root(fmaxf(limit - near, 1.f)) - 1.f;
  }
  // Of modes b .. b + 3, but 0 from mode n + 1 on.
  __device__ __forceinline__ void operator()(float (&std)[4], int b, int n) const {
    const float j = static_cast<float>(b);
#pragma unroll
    for (int i = 0; i < 4; ++i) std[i] = fmaf(j + i, j + i, near);
    if (j >= from && j + 3.f <= to) {
#pragma unroll
      for (int i = 0; i < 4; ++i) std[i] = inverse_root(std[i]);
    } else if (few) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float j2 = std[i] - near, k = period - (j + i), k2 = k * k;
        float variance = reciprocal(std[i]);  // inside, or there would be no such b
        const auto add = [&](float square) { variance += square <= limit ? reciprocal(square) : 0.f; };
        add(far + j2), add(near + k2), add(far + k2);
        std[i] = root(variance);
      }
    } else {
      const float4 variance = folded_variances(a, b, limit, height, width);
      std[0] = root(variance.x), std[1] = root(variance.y), std[2] = root(variance.z), std[3] = root(variance.w);
    }
    if (b + 3 > n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (b + i > n) std[i] = 0.f;
    }
  }
};

// Two numbers as halves, and what that loses.
__device__ __forceinline__ uint32_t halves(float x, float y) {
  const __half2 h = __floats2half2_rn(x, y);
  uint32_t word;
  memcpy(&word, &h, sizeof word);
  return word;
}
__device__ __forceinline__ uint32_t residuals(float x, float y) {
  const float2 back = __half22float2(__floats2half2_rn(x, y));
  return halves(x - back.x, y - back.y);
}

// Draws a lane's coefficients of one step of kK modes of each parity in row a, which holds modes 1 .. n, as halves;
// zeros beyond. put(parity, residual, words): row_shift 2 t and + 8, column_shift 2 t and + 8; `residual`: what
// rounding lost. Both fields have the same standard deviations.
template <class Put>
__device__ __forceinline__ void draw(int step, int a, int n, const Field& f, const FoldedStd& folded_std, Put put) {
  Block<uint32_t> block[2][2];  // [direction][half]
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t counter = static_cast<uint32_t>(a) * kRun + 8 * step + i % 2 * 4 + threadIdx.x % 4;
    block[i / 2][i % 2] =
        f.key.block<uint32_t>(counter, f.chain, f.slot, i / 2 ? Purpose::column_shift : Purpose::row_shift);
  }
  Normals<float> z[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float std[4];
    folded_std(std, 4 * (8 * step + 4 * half + threadIdx.x % 4) + 1, n);
#pragma unroll
    for (int direction = 0; direction < 2; ++direction) {
      z[direction][half] = fast_normals(block[direction][half]);
#pragma unroll
      for (int i = 0; i < 4; ++i) z[direction][half].z[i] *= std[i];
    }
  }
  const auto put_all = [&](bool residual, auto two) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {  // number 0 is mode 1, which is odd
      const auto words = [&](const Normals<float>& z) { return two(z.z[parity], z.z[parity + 2]); };
      put(parity, residual, uint4{words(z[0][0]), words(z[0][1]), words(z[1][0]), words(z[1][1])});
    }
  };
  put_all(false, halves);
  if (f.split) put_all(true, residuals);
}

}  // namespace prime
