// What a pass does to pixels: filter, displacement, color maps, noise.
#pragma once
#include "device.cuh"
#include "pixels.cuh"

namespace prime {

// A thread makes two neighbouring columns and some rows of an image, row by row: put(r, x) takes row r of them, x in
// [0, 1]. What does not depend on the row is made once for all rows.
using Two = float[2][3];  // [column][channel]

// Rows that stay in registers for the pointwise slots after a filter or a displacement.
struct Patch {
  Two v[kStrip];
};

struct Place {
  int x, y;  // of the first pixel; x is even
  __device__ Place(int x, int y) : x(x), y(y) {}
  __device__ Place(const Work& w, int thread) {
    const int at = blockIdx.x * kThreads + thread, strip = __umulhi(at, w.per_pair);  // at / pairs
    x = 2 * (at - strip * w.pairs), y = kRows * strip;  // threads past the end do as the others, and write nothing
  }
};

// One image of the workspace.
struct Source {
  const uint2* pixels;
  int height, width, pitch;
  __device__ const uint2* at(int y, int x) const { return pixels + static_cast<unsigned>(y * pitch + x); }
};

// What `to_x` makes of each value: to_x(pixel, channel).
template <int kCount, class ToX, class Put>
__device__ __forceinline__ void read(const Source& s, Place o, ToX to_x, Put put) {
#pragma unroll 2
  for (int r = 0; r < kCount; ++r) {
    const uint4 two = __ldg(reinterpret_cast<const uint4*>(s.at(min(o.y + r, s.height - 1), o.x)));
    Two v;
#pragma unroll
    for (int c = 0; c < 3; ++c) v[0][c] = to_x({two.x, two.y}, c), v[1][c] = to_x({two.z, two.w}, c);
    put(r, v);
  }
}

// Black pixels, two on either side of a thread's two.
__device__ const uint4 kBlackRow[3] = {{kBlack, kBlackBlue, kBlack, kBlackBlue},
                                       {kBlack, kBlackBlue, kBlack, kBlackBlue},
                                       {kBlack, kBlackBlue, kBlack, kBlackBlue}};

// y = sum of taps x neighbours, zeros around the image. The taps meet 1 + (255/256) x, so their sum is taken off first.
// A row of the source is read once, and adds to the rows above, at and below it.
template <int kCount, class Put>
__device__ __forceinline__ void filter_3x3(const Source& s, Place o, const float* taps, Put put) {
  float t[10];  // and their sum
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 four = __ldg(reinterpret_cast<const float4*>(taps) + i);
    t[4 * i] = four.x, t[4 * i + 1] = four.y, t[4 * i + 2] = four.z, t[4 * i + 3] = four.w;
  }
  t[8] = __ldg(taps + 8), t[9] = __ldg(taps + 9);
  const bool begins = o.x == 0, ends = o.x + 2 >= s.width;
  const Decoder right(o.x + 1 < s.width);
  const int below = s.height - o.y;  // rows from the first one on
  const uint2* row = s.pixels + (static_cast<int64_t>(o.y) - 1) * s.pitch + o.x;
  struct Row {
    uint2 before{kBlack, kBlackBlue}, after{kBlack, kBlackBlue};  // stay so where the image ends
    uint4 here;
  };
  const auto load = [&](Row& to, bool inside) {  // the next row
    const uint2* from = inside ? row : reinterpret_cast<const uint2*>(kBlackRow + 1);
    if (!begins) to.before = __ldg(from - 1);
    to.here = __ldg(reinterpret_cast<const uint4*>(from));
    if (!ends) to.after = __ldg(from + 2);
    row += s.pitch;
  };
  const auto decoded = [&](float(&column)[3][4], const Row& from) {
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      column[c][0] = decode(from.before, c), column[c][1] = decode({from.here.x, from.here.y}, c);
      column[c][2] = right({from.here.z, from.here.w}, c), column[c][3] = decode(from.after, c);
    }
  };
  // What a row adds to the sums of three: row `y` of the taps.
  const auto add = [&](Two& sum, const float(&column)[3][4], int y) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        float v = y == 0 ? -t[9] : sum[i][c];
        v = fmaf(t[3 * y], column[c][i], v), v = fmaf(t[3 * y + 1], column[c][i + 1], v);
        sum[i][c] = y == 2 ? clipped_fma(t[8], column[c][i + 2], v) : fmaf(t[3 * y + 2], column[c][i + 2], v);
      }
  };
  Two sum[2];  // of this row and of the next one
  float column[3][4];
  Row first, ahead;
  load(first, static_cast<unsigned>(o.y - 1) < static_cast<unsigned>(s.height)), load(ahead, 0 < below);
  decoded(column, first);
  add(sum[0], column, 0);
  decoded(column, ahead);
  load(ahead, 1 < below);
  add(sum[0], column, 1), add(sum[1], column, 0);
#pragma unroll
  for (int r = 0; r < kCount; ++r) {
    if (r > 0 && r >= below) break;
    Two &here = sum[r % 2], &next = sum[(r + 1) % 2];
    decoded(column, ahead);
    if (r + 1 < kCount) load(ahead, r + 2 < below);
    add(here, column, 2);
    put(r, here);
    if (r + 1 < kCount) add(next, column, 1), add(here, column, 0);  // the one after
  }
}

template <int kCount, class Put>
__device__ __forceinline__ void filter_any(const Source& s, Place o, const float* taps, int size, Put put) {
  const float sum = __ldg(taps + size * size);
#pragma unroll 1
  for (int r = 0; r < kCount; ++r) {
    Two v;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float y[3] = {-sum, -sum, -sum};
      for (int ky = 0; ky < size; ++ky)
        for (int kx = 0; kx < size; ++kx) {
          const int from_y = o.y + r + ky - size / 2, from_x = o.x + i + kx - size / 2;
          const bool inside = from_y >= 0 && from_y < s.height && from_x >= 0 && from_x < s.width;
          const Raw raw = inside ? decode(__ldg(s.at(from_y, from_x))) : Raw{{1.f, 1.f, 1.f}};
#pragma unroll
          for (int c = 0; c < 3; ++c) y[c] = fmaf(__ldg(taps + ky * size + kx), raw.c[c], y[c]);
        }
#pragma unroll
      for (int c = 0; c < 3; ++c) v[i][c] = __saturatef(y[c]);
    }
    put(r, v);
  }
}

// Where to read along one axis, clamped to the image: the last pixel before that point but one that has a next one, as
// kMagic and its number, and the next one's weight. `last`: kMagic and the number of the last pixel but one. The shift
// is unit * code less what `at` has more than kMagic and the pixel's own number. The weight is the exact fraction: at
// pixel 4000 a float32 sum would lose half its digits.
constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: a sum with it is a whole number, in its low bits
constexpr uint32_t kMagicBits = 0x4b400000;
__device__ __forceinline__ float displaced(float code, float unit, float at, float last, float& next) {
  const float whole = fminf(fmaxf(__fmaf_rd(-unit, code, at), kMagic), last);
  next = clipped_fma(-unit, code, at - whole);
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

template <int kCount, class Put>
__device__ __forceinline__ void displace(const Source& s, Place o, const uint2* field, float unit, Put put) {
  const float zero = kMagic + (unit == kWide ? 0.f : unit * kCodeZero);  // a whole number
  const float bottom = kMagic + static_cast<float>(s.height - 2), right = kMagic + static_cast<float>(s.width - 2);
  const float at_x = zero + static_cast<float>(o.x);
  float at_y = zero + static_cast<float>(o.y);
  const uint2 *upper_pixels = s.pixels, *lower_pixels = s.pixels + s.pitch;
  const uint32_t origin = -kMagicBits * (s.pitch + 1);  // so that whole numbers can stay as they are
#pragma unroll 1
  for (int row = 0; row < kCount && row < s.height - o.y; row += kStrip) {
    float shift[kStrip][2][2];
    read_shifts(shift, field, unit == kWide, s, {o.x, o.y + row});
#pragma unroll
    for (int r = 0; r < kStrip; ++r) {
      Two v;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float next_y, next_x;
        const float down = displaced(shift[r][i][0], unit, at_y, bottom, next_y);
        const float across = displaced(shift[r][i][1], unit, at_x + static_cast<float>(i), right, next_x);
        const uint32_t at = static_cast<uint32_t>(bits(down)) * s.pitch + origin + static_cast<uint32_t>(bits(across));
        const uint2 *upper_corner = upper_pixels + at, *lower_corner = lower_pixels + at;
        const Raw a = decode(__ldg(upper_corner)), b = decode(__ldg(upper_corner + 1)), c = decode(__ldg(lower_corner)),
                  d = decode(__ldg(lower_corner + 1));
        // x is kUp (raw - 1): the weights carry kUp, so their sum takes the 1 off.
        const float lower = next_y * kUp, upper = kUp - lower;
        const float right_lower = next_x * lower, right_upper = next_x * upper;
        const float left_lower = lower - right_lower, left_upper = upper - right_upper;
#pragma unroll
        for (int k = 0; k < 3; ++k)
          v[i][k] = clipped_fma(right_lower, d.c[k],
                                fmaf(left_lower, c.c[k], fmaf(right_upper, b.c[k], fmaf(left_upper, a.c[k], -kUp))));
      }
      put(row + r, v);
      at_y += 1.f;
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

// Brings a pass's table, if it has one, into shared memory. All threads of the block come here.
__device__ __forceinline__ void load_table(Table& table, const Pass& pass) {
  if (pass.op != kColor) return;
  constexpr int kQuads = sizeof(Table) / sizeof(uint4);
  __syncthreads();  // nobody still reads another chain's table
  for (int i = threadIdx.x; i < kQuads; i += kThreads)
    reinterpret_cast<uint4*>(table)[i] = __ldg(static_cast<const uint4*>(pass.operand) + i);
  __syncthreads();
}

// A pass of a unit's chain without its pointwise slots.
template <bool k3x3, int kCount, class Put>
__device__ __forceinline__ void run_first(const Work& w, Place o, const Pass& pass, const Table& table, Put put) {
  const Source source{pass.source, w.args.height, w.args.width, w.pitch};
  if (pass.op == kSpectral) {
    const float* taps = static_cast<const float*>(pass.operand);
    if constexpr (k3x3)
      filter_3x3<kCount>(source, o, taps, put);
    else
      filter_any<kCount>(source, o, taps, w.args.filter, put);
  } else if (pass.op == kSpatial) {
    displace<kCount>(source, o, static_cast<const uint2*>(pass.operand), pass.unit, put);
  } else if (pass.op == kColor) {
    read<kCount>(source, o, [&](uint2 p, int c) { return table[c][level(p, c)]; }, put);
  } else {
    read<kCount>(source, o, [](uint2 p, int c) { return nearest(decode(p, c) - 1.f); }, put);
  }
}

// A pass of a unit's chain, on this thread's pixels.
template <bool k3x3, class Put>
__device__ __forceinline__ void run_pass(const Work& w, Place o, int unit, const Pass& pass, const Table& table,
                                         Put put) {
  if (pass.first == pass.last) return run_first<k3x3, kRows>(w, o, pass, table, put);
  const Step* steps = w.steps + unit * w.args.depth;
#pragma unroll 1
  for (int row = 0; row < kRows && row < w.args.height - o.y; row += kStrip) {
    const Place here{o.x, o.y + row};
    Patch p;
    run_first<k3x3, kStrip>(w, here, pass, table, [&](int r, const Two& v) {
#pragma unroll
      for (int i = 0; i < 6; ++i) p.v[r][i / 3][i % 3] = v[i / 3][i % 3];
    });
    for (int j = pass.first; j < pass.last; ++j) pointwise(p, w, here, unit, steps[j]);
#pragma unroll
    for (int r = 0; r < kStrip; ++r) put(row + r, p.v[r]);
  }
}

}  // namespace prime
