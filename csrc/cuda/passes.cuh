// What a pass does to pixels: filter, displacement, color maps, noise.
#pragma once
#include "device.cuh"
#include "pixels.cuh"

namespace prime {

// Two neighbouring columns and kStrip rows of an image, one thread's share: [row][column][channel], x in [0, 1].
struct Patch {
  float v[kStrip][2][3];
};

struct Place {
  int x, y;  // of the first pixel; x is even
  __device__ Place(int x, int y) : x(x), y(y) {}
  __device__ explicit Place(const Work& w, int thread = threadIdx.x) {
    const int at = blockIdx.x * kThreads + thread, strip = __umulhi(at, w.per_pair);  // at / pairs
    x = 2 * (at - strip * w.pairs), y = kRows * strip;  // threads past the end do as the others, and write nothing
  }
};

// One image of the workspace.
struct Source {
  const uint2* pixels;
  int height, width, pitch;
  __device__ Raw at(int y, int x) const { return decode(__ldg(pixels + static_cast<unsigned>(y * pitch + x))); }
};

// What `to_x` makes of each value: to_x(channel, raw).
template <class ToX>
__device__ __forceinline__ void read(Patch& p, const Source& s, Place o, ToX to_x) {
#pragma unroll
  for (int r = 0; r < kStrip; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Raw raw = s.at(min(o.y + r, s.height - 1), o.x + i);
#pragma unroll
      for (int c = 0; c < 3; ++c) p.v[r][i][c] = to_x(c, raw.c[c]);
    }
}

// y = sum of taps x neighbours, zeros around the image. The taps meet 1 + (255/256) x, so their sum is taken off first.
__device__ __forceinline__ void filter_3x3(Patch& p, const Source& s, Place o, const float* taps) {
  float t[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) t[i] = __ldg(taps + i);
  const float sum = __ldg(taps + 9);
#pragma unroll
  for (int r = 0; r < kStrip; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int c = 0; c < 3; ++c) p.v[r][i][c] = -sum;
  const bool begins = o.x == 0, alone = o.x + 1 >= s.width, ends = o.x + 2 >= s.width;
  const uint2* first = s.pixels + (o.y - 1) * s.pitch + o.x;
  uint4 middle[kStrip + 2];  // all asked for at once
  uint2 before[kStrip + 2], after[kStrip + 2];
#pragma unroll
  for (int r = 0; r < kStrip + 2; ++r) {
    const uint2* row = first + r * s.pitch;
    before[r] = after[r] = {kBlack, kBlack}, middle[r] = {kBlack, kBlack, kBlack, kBlack};
    if (static_cast<unsigned>(o.y - 1 + r) >= static_cast<unsigned>(s.height)) continue;
    middle[r] = __ldg(reinterpret_cast<const uint4*>(row));
    if (!begins) before[r] = __ldg(row - 1);
    if (!ends) after[r] = __ldg(row + 2);
  }
#pragma unroll
  for (int r = 0; r < kStrip + 2; ++r) {
    const uint2 right = alone ? uint2{kBlack, kBlack} : uint2{middle[r].z, middle[r].w};
    const Raw column[4] = {decode(before[r]), decode({middle[r].x, middle[r].y}), decode(right), decode(after[r])};
#pragma unroll
    for (int out = 0; out < kStrip; ++out) {
      const int ky = r - out;
      if (ky < 0 || ky > 2) continue;
#pragma unroll
      for (int kx = 0; kx < 3; ++kx)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int c = 0; c < 3; ++c) p.v[out][i][c] = fmaf(t[3 * ky + kx], column[i + kx].c[c], p.v[out][i][c]);
    }
  }
}

__device__ __forceinline__ void filter_any(Patch& p, const Source& s, Place o, const float* taps, int size) {
  const float sum = __ldg(taps + size * size);
#pragma unroll
  for (int r = 0; r < kStrip; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float y[3] = {-sum, -sum, -sum};
      for (int ky = 0; ky < size; ++ky)
        for (int kx = 0; kx < size; ++kx) {
          const int from_y = o.y + r + ky - size / 2, from_x = o.x + i + kx - size / 2;
          const bool inside = from_y >= 0 && from_y < s.height && from_x >= 0 && from_x < s.width;
          const Raw raw = inside ? s.at(from_y, from_x) : Raw{{1.f, 1.f, 1.f}};
#pragma unroll
          for (int c = 0; c < 3; ++c) y[c] = fmaf(__ldg(taps + ky * size + kx), raw.c[c], y[c]);
        }
#pragma unroll
      for (int c = 0; c < 3; ++c) p.v[r][i][c] = y[c];
    }
}

__device__ __forceinline__ void clip(Patch& p) {
#pragma unroll
  for (int r = 0; r < kStrip; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int c = 0; c < 3; ++c) p.v[r][i][c] = __saturatef(p.v[r][i][c]);
}

// Where to read along one axis, clamped to the image: the last pixel before that point but one that has a next one, as
// kMagic and its number, and the next one's weight. `last`: kMagic and the number of the last pixel but one. The shift
// is unit * code less what `at` has more than kMagic and the pixel's own number. The weight is the exact fraction: at
// pixel 4000 a float32 sum would lose half its digits.
constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: a sum with it is a whole number, in its low bits
__device__ __forceinline__ float displaced(float code, float unit, float at, float last, float& next) {
  const float whole = fminf(fmaxf(__fmaf_rd(-unit, code, at), kMagic), last);
  next = saturated_fma(-unit, code, at - whole);
  return whole;
}

// Shifts of a patch as they are kept, codes as floats, [row][column][down, right].
__device__ __forceinline__ void read_shifts(float (&shift)[kStrip][2][2], const uint2* field, bool wide,
                                            const Source& s, Place o) {
  const auto pair = [&](int r) { return static_cast<unsigned>(min(o.y + r, s.height - 1) * s.pitch + o.x) / 2; };
  if (wide) {
#pragma unroll
    for (int r = 0; r < kStrip; ++r) {
      const float4 two = __ldg(reinterpret_cast<const float4*>(field) + pair(r));
      shift[r][0][0] = two.x, shift[r][0][1] = two.y, shift[r][1][0] = two.z, shift[r][1][1] = two.w;
    }
    return;
  }
  uint2 two[kStrip];  // all asked for at once
#pragma unroll
  for (int r = 0; r < kStrip; ++r) two[r] = __ldg(field + pair(r));
#pragma unroll
  for (int r = 0; r < kStrip; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = __byte_perm(i / 2 ? two[r].y : two[r].x, kCodeBits, i % 2 ? 0x7632 : 0x7610);
      shift[r][i / 2][i % 2] = from_bits(static_cast<int32_t>(code));
    }
}

__device__ __forceinline__ void displace(Patch& p, const Source& s, Place o, const uint2* field, float unit) {
  float shift[kStrip][2][2];
  read_shifts(shift, field, unit == kWide, s, o);
  const float zero = kMagic + (unit == kWide ? 0.f : unit * kCodeZero);  // a whole number
  const float bottom = kMagic + static_cast<float>(s.height - 2), right = kMagic + static_cast<float>(s.width - 2);
#pragma unroll
  for (int r = 0; r < kStrip; ++r) {
    const float at_y = zero + static_cast<float>(min(o.y + r, s.height - 1));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float next_y, next_x;
      const int y = bits(displaced(shift[r][i][0], unit, at_y, bottom, next_y)) - bits(kMagic);
      const int x =
          bits(displaced(shift[r][i][1], unit, zero + static_cast<float>(o.x + i), right, next_x)) - bits(kMagic);
      const uint2* corner = s.pixels + static_cast<unsigned>(y * s.pitch + x);
      const Raw a = decode(__ldg(corner)), b = decode(__ldg(corner + 1)), c = decode(__ldg(corner + s.pitch)),
                d = decode(__ldg(corner + s.pitch + 1));
      // x is kUp (raw - 1): the weights carry kUp, so their sum takes the 1 off.
      const float lower = next_y * kUp, upper = kUp - lower, right_lower = next_x * lower, right_upper = next_x * upper;
      const float left_lower = lower - right_lower, left_upper = upper - right_upper;
#pragma unroll
      for (int k = 0; k < 3; ++k)
        p.v[r][i][k] = fmaf(right_lower, d.c[k],
                            fmaf(left_lower, c.c[k], fmaf(right_upper, b.c[k], fmaf(left_upper, a.c[k], -kUp))));
    }
  }
}

// Long and rarely run: functions of their own, the second on a copy of the patch in memory.
__device__ __noinline__ float wide_color(float x, const float* coefficients, int first, int count) {
  return color_map(x, coefficients, first, count);
}
__device__ __noinline__ void rare_step(Patch& p, Step s, Stream stream, int chain, int height, int x, int y) {
  for (int r = 0; r < kStrip; ++r)
    for (int c = 0; c < 3; ++c) {
      float &left = p.v[r][0][c], &right = p.v[r][1][c];
      if (s.primitive == kColor) {
        left = wide_color(left, s.parameters + c * s.count, s.first, s.count);
        right = wide_color(right, s.parameters + c * s.count, s.first, s.count);
      } else {
        const uint32_t counter = static_cast<uint32_t>(c * height + y + r) * kRun + x / 4;
        const auto z = normals(stream.block<uint32_t>(counter, chain, s.slot, Purpose::noise));
        left = __saturatef(fmaf(s.strength, x % 4 ? z.z[2] : z.z[0], left));
        right = __saturatef(fmaf(s.strength, x % 4 ? z.z[3] : z.z[1], right));
      }
    }
}

__device__ __forceinline__ void pointwise(Patch& p, const Work& w, Place o, int unit, const Step& s) {
  if (s.primitive != kColor || s.count > kPolynomial) {
    Patch copy = p;
    const int chain = unit % w.args.chains;
    rare_step(copy, s, w.plan(unit / w.args.chains).stream(), chain, w.args.height, o.x, o.y);
    p = copy;
    return;
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    float* x[2 * kStrip];
#pragma unroll
    for (int i = 0; i < 2 * kStrip; ++i) x[i] = &p.v[i / 2][i % 2][c];
    color_polynomial(x, s.parameters + c * kPolynomialWords);
  }
}

// What color steps make of the 256 values of a byte.
using Table = float[3][256];

// Makes the table of a pass without a filter or displacement, if it can have one: bytes and colors. All threads of the
// block come here; returns whether there is a table.
__device__ __forceinline__ bool tabulate(Table& table, const Work& w, int unit, const Pass& pass) {
  static_assert(kThreads == 256, "a thread a byte");
  if (pass.op != kIdentity || w.args.in_type != DType::u8) return false;
  const Step* steps = w.steps + unit * w.args.depth;
  for (int j = pass.first; j < pass.last; ++j)
    if (steps[j].primitive != kColor) return false;
  __syncthreads();  // nobody still reads another chain's table
  float x[3];
#pragma unroll
  for (int c = 0; c < 3; ++c) x[c] = byte_value(threadIdx.x);
  for (int j = pass.first; j < pass.last; ++j) {
    const Step s = steps[j];
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      if (s.count > kPolynomial) {
        x[c] = wide_color(x[c], s.parameters + c * s.count, s.first, s.count);
      } else {
        float* one[1] = {&x[c]};
        color_polynomial(one, s.parameters + c * kPolynomialWords);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) table[c][threadIdx.x] = x[c];
  __syncthreads();
  return true;
}

// A pass of a unit's chain, on this thread's pixels.
template <bool k3x3>
__device__ __forceinline__ void run_pass(Patch& p, const Work& w, Place o, int unit, const Pass& pass,
                                         const Table& table, bool tabulated) {
  const Source source{pass.source, w.args.height, w.args.width, w.pitch};
  if (tabulated) return read(p, source, o, [&](int c, float raw) { return table[c][level(raw)]; });
  if (pass.op == kSpectral) {
    const float* taps = static_cast<const float*>(pass.operand);
    if constexpr (k3x3)
      filter_3x3(p, source, o, taps);
    else
      filter_any(p, source, o, taps, w.args.filter);
    clip(p);
  } else if (pass.op == kSpatial) {
    displace(p, source, o, static_cast<const uint2*>(pass.operand), pass.unit);
  } else {
    read(p, source, o, [](int, float raw) { return nearest(raw - 1.f); });
  }
  const Step* steps = w.steps + unit * w.args.depth;
  for (int j = pass.first; j < pass.last; ++j) pointwise(p, w, o, unit, steps[j]);
}

}  // namespace prime
