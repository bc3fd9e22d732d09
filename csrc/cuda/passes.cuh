// What a pass does to pixels: filter, displacement, color maps, noise.
#pragma once
#include "pixels.cuh"

namespace prime {

// Two neighbouring columns and kStrip rows of an image, one thread's share: [row][column][channel], x in [0, 1].
struct Patch {
  float v[kStrip][2][3];
};

struct Place {
  int x, y;  // of the first pixel; x is even
  __device__ explicit Place(const Work& w) {
    const int at = blockIdx.x * kThreads + threadIdx.x, strip = __umulhi(at, w.per_pair);  // at / pairs
    x = 2 * (at - strip * w.pairs), y = kStrip * strip;  // threads past the end do as the others, and write nothing
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
#pragma unroll
  for (int r = -1; r <= kStrip; ++r) {
    const int y = o.y + r;
    const uint2* row = s.pixels + y * s.pitch + o.x;
    const uint2 black = {kBlack, kBlack};
    uint2 before = black, left = black, right = black, after = black;
    if (y >= 0 && y < s.height) {
      const uint4 two = __ldg(reinterpret_cast<const uint4*>(row));
      left = {two.x, two.y};
      if (!alone) right = {two.z, two.w};
      if (!begins) before = __ldg(row - 1);
      if (!ends) after = __ldg(row + 2);
    }
    const Raw column[4] = {decode(before), decode(left), decode(right), decode(after)};
#pragma unroll
    for (int out = 0; out < kStrip; ++out) {
      const int ky = r - out + 1;
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

// Where to read along one axis, clamped to the image: how far away is a pixel that has a next one, and that one's
// weight. `before` and `after`: pixels to the two ends of the axis. The fraction is taken from the shift alone: at
// pixel 4000 a float32 sum would lose half its digits.
__device__ __forceinline__ int displaced(float shift, float before, float after, float& next) {
  const float t = fminf(fmaxf(-shift, -before), after), whole = fminf(floorf(t), after - 1.f);
  next = t - whole;
  return static_cast<int>(whole);
}

template <bool kWide>
__device__ __forceinline__ void displace(Patch& p, const Source& s, Place o, const float* field, int64_t pixels) {
  using Two = std::conditional_t<kWide, float2, __half2>;
  using One = std::conditional_t<kWide, float, __half>;
  const One* down = reinterpret_cast<const One*>(field);
  const One* right = reinterpret_cast<const One*>(field + pixels);
  Two shift[kStrip][2];  // all asked for at once
#pragma unroll
  for (int r = 0; r < kStrip; ++r) {
    const int at = min(o.y + r, s.height - 1) * s.pitch + o.x;
    shift[r][0] = __ldg(reinterpret_cast<const Two*>(down + at));
    shift[r][1] = __ldg(reinterpret_cast<const Two*>(right + at));
  }
  const auto floats = [](Two v) {
    if constexpr (kWide)
      return v;
    else
      return __half22float2(v);
  };
  const float left = static_cast<float>(o.x), over = static_cast<float>(s.width - 1) - left;
#pragma unroll
  for (int r = 0; r < kStrip; ++r) {
    const int y = min(o.y + r, s.height - 1);
    const float above = static_cast<float>(y), below = static_cast<float>(s.height - 1) - above;
    const float2 dy = floats(shift[r][0]), dx = floats(shift[r][1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float next_y, next_x;
      const int y_off = displaced(i ? dy.y : dy.x, above, below, next_y);
      const int x_off = displaced(i ? dx.y : dx.x, left + i, over - i, next_x);
      const uint2* corner = s.pixels + static_cast<unsigned>(y * s.pitch + o.x + i + y_off * s.pitch + x_off);
      const Raw a = decode(__ldg(corner)), b = decode(__ldg(corner + 1)), c = decode(__ldg(corner + s.pitch)),
                d = decode(__ldg(corner + s.pitch + 1));
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        const float upper = fmaf(next_x, b.c[k] - a.c[k], a.c[k]), lower = fmaf(next_x, d.c[k] - c.c[k], c.c[k]);
        p.v[r][i][k] = from_raw(fmaf(next_y, lower - upper, upper));
      }
    }
  }
}

// Functions of their own, because they are long, rarely run, and would be repeated for every pixel of a patch.
__device__ __noinline__ float wide_color(float x, const float* coefficients, int first, int count) {
  return color_map(x, coefficients, first, count);
}
__device__ __noinline__ float noise(Stream stream, int chain, int j, int row, int x, int width) {
  const int blocks = run_blocks(width), lane = x / blocks;
  const auto z =
      normals(stream.block<uint32_t>(static_cast<uint32_t>(row) * kRun + x % blocks, chain, j, Purpose::noise));
  return lane == 0 ? z.z[0] : lane == 1 ? z.z[1] : lane == 2 ? z.z[2] : z.z[3];
}

// A color step on values of channel c.
template <int N>
__device__ __forceinline__ void color(float* (&x)[N], const Step& s, int c) {
  if (s.count <= kPolynomial) return color_polynomial(x, s.parameters + c * kPolynomialWords);
#pragma unroll
  for (int i = 0; i < N; ++i) *x[i] = wide_color(*x[i], s.parameters + c * s.count, s.first, s.count);
}

__device__ __forceinline__ void pointwise(Patch& p, const Work& w, Place o, int unit, const Step& s) {
  if (s.primitive == kColor) {
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      float* x[2 * kStrip];
#pragma unroll
      for (int i = 0; i < 2 * kStrip; ++i) x[i] = &p.v[i / 2][i % 2][c];
      color(x, s, c);
    }
    return;
  }
  const Stream stream = w.plan(unit / w.args.chains).stream();
#pragma unroll
  for (int i = 0; i < kStrip * 6; ++i) {
    float& x = p.v[i / 6][i / 3 % 2][i % 3];
    const int row = i % 3 * w.args.height + o.y + i / 6;
    x = __saturatef(
        fmaf(s.strength, noise(stream, unit % w.args.chains, s.slot, row, o.x + i / 3 % 2, w.args.width), x));
  }
}

// What color steps make of the 256 values of a byte, by the whole block.
using Table = float[3][256];
__device__ __forceinline__ void tabulate(Table& table, const Step* steps, const Pass& pass) {
  static_assert(kThreads == 256, "a thread a byte");
  __syncthreads();  // nobody still reads another chain's table
  float x[3];
#pragma unroll
  for (int c = 0; c < 3; ++c) x[c] = byte_value(threadIdx.x);
  for (int j = pass.first; j < pass.last; ++j) {
    const Step s = steps[j];
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      float* one[1] = {&x[c]};
      color(one, s, c);
    }
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) table[c][threadIdx.x] = x[c];
  __syncthreads();
}

// A pass of a unit's chain, on this thread's pixels. All threads of the block come here.
template <bool k3x3>
__device__ __forceinline__ void run_pass(Patch& p, const Work& w, Place o, int unit, const Pass& pass, Table& table) {
  const Step* steps = w.steps + unit * w.args.depth;
  const Source source{pass.source, w.args.height, w.args.width, w.pitch};
  if (pass.op == kSpectral) {
    const float* taps = static_cast<const float*>(pass.operand);
    if constexpr (k3x3)
      filter_3x3(p, source, o, taps);
    else
      filter_any(p, source, o, taps, w.args.filter);
    clip(p);
  } else if (pass.op == kSpatial) {
    const float* field = static_cast<const float*>(pass.operand);
    if (pass.wide)
      displace<true>(p, source, o, field, w.pixels);
    else
      displace<false>(p, source, o, field, w.pixels);
  } else {
    bool bytes = w.args.in_type == DType::u8;  // such a pass comes first
    for (int j = pass.first; j < pass.last; ++j) bytes &= steps[j].primitive == kColor;
    if (bytes) {
      tabulate(table, steps, pass);
      return read(p, source, o, [&](int c, float raw) { return table[c][level(raw)]; });
    }
    read(p, source, o, [](int, float raw) { return nearest(raw - 1.f); });
  }
  for (int j = pass.first; j < pass.last; ++j) pointwise(p, w, o, unit, steps[j]);
}

}  // namespace prime
