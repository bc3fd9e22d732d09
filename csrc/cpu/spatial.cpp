// Displacement on the CPU: coefficients, two small matrix products a field, and a bilinear gather.
#include <algorithm>
#include <vector>

#include "cpu.h"
#include "lanes.h"

namespace prime {
namespace {

constexpr int kPanel = 2 * kLanes;  // columns of a product computed together

int round_up(int n, int step) { return (n + step - 1) / step * step; }

// C[0..R) x panel = sum over k of A(r, k) panel[k], k ascending.
template <int R>
void product_tile(const float* a, int64_t a_row, int64_t a_k, const float* panel, float* c, int ldc, int depth) {
  Lanes sum[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = Lanes(0.f);
  for (int k = 0; k < depth; ++k) {
    const Lanes b0 = Lanes::load(panel + k * kPanel), b1 = Lanes::load(panel + k * kPanel + kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Lanes factor(a[r * a_row + k * a_k]);
      sum[r][0] = fma(factor, b0, sum[r][0]);
      sum[r][1] = fma(factor, b1, sum[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sum[r][0].store(c + static_cast<int64_t>(r) * ldc);
    sum[r][1].store(c + static_cast<int64_t>(r) * ldc + kLanes);
  }
}

// C[m x n] = A B, n a multiple of kPanel, `depth` the rows of B. depth_of(r) bounds the terms of row r of C and those
// below it. The panel of B at hand is copied together, so that it stays in the nearest cache.
template <class Depth>
void product(const float* a, int64_t a_row, int64_t a_k, const float* b, int ldb, float* c, int ldc, int m, int n,
             int depth, float* panel, Depth depth_of) {
  for (int x = 0; x < n; x += kPanel) {
    for (int k = 0; k < depth; ++k)
      memcpy(panel + k * kPanel, b + static_cast<int64_t>(k) * ldb + x, kPanel * sizeof(float));
    int r = 0;
    for (; r + 6 <= m; r += 6)
      product_tile<6>(a + r * a_row, a_row, a_k, panel, c + static_cast<int64_t>(r) * ldc + x, ldc, depth_of(r));
    for (; r < m; ++r)
      product_tile<1>(a + r * a_row, a_row, a_k, panel, c + static_cast<int64_t>(r) * ldc + x, ldc, depth_of(r));
  }
}

// Row a of the coefficients B_ab, b = 1 .. n; `variance` has room for n numbers.
void coefficient_row(float* __restrict out, float* __restrict variance, int a, int n, const Geometry& g, Slot s,
                     Key key, int chain, int j, Purpose purpose) {
  normal_run(out, n, key, static_cast<uint32_t>(a) * kRun, chain, j, purpose);
  // Standard deviations of a whole row: the sum of 1 / (i^2 + j^2) over the aliases (i, j) of (a, b) inside the disc.
  std::fill(variance, variance + n, 0.f);
  const int limit = s.last * s.last + s.last;
  for (int p = 0, row; (row = alias(a, p, g.height - 1)) <= s.last; ++p)
    for (int q = 0; alias(q % 2 ? n : 1, q, g.width - 1) <= s.last; ++q)  // while the lowest one is inside
      for (int b = 0; b < n; ++b) {
        const int column = alias(b + 1, q, g.width - 1), square = row * row + column * column;
        variance[b] += square <= limit ? 1.f / static_cast<float>(square) : 0.f;
      }
  for (int b = 0; b < n; ++b) out[b] *= sqrt(variance[b]);
}

// One field u on the grid, before the factor sqrt(T) x side. out: rows of columns->pitch numbers.
void field(float* out, const Geometry& g, Slot s, Key key, int chain, int j, Purpose purpose, SpatialScratch& scratch) {
  const int rows = modes(s.last, g.height), columns = modes(s.last, g.width), pitch = g.columns->pitch;
  const int lda = round_up(g.columns->modes, 4);
  float* b = scratch.coefficients.get();
  for (int r = 0; r < rows; ++r) {
    const int n = row_modes(r + 1, s.last, g.width);
    float* row = b + static_cast<int64_t>(r) * lda;
    coefficient_row(row, scratch.half.get(), r + 1, n, g, s, key, chain, j, purpose);
    std::fill(row + n, row + columns, 0.f);
  }
  float* panel = scratch.panel();
  product(b, lda, 1, g.columns->values.get(), pitch, scratch.half.get(), pitch, rows, pitch, columns, panel,
          [&](int r) { return row_modes(r + 1, s.last, g.width); });
  product(g.rows->values.get(), 1, g.rows->pitch, scratch.half.get(), pitch, out, pitch, g.height, pitch, rows, panel,
          [&](int) { return rows; });
}

// Where to read along one axis: position p - shift, clamped to the image, as a pixel and the weight of the next one.
// The fraction is taken from the shift alone: at p = 4000 a float32 sum would lose half its digits.
struct Position {
  int pixel;
  float next;
};
Position displace(int p, float shift, int side) {  // without branches, so that CPU loops vectorize
  const float whole = floor(-shift), at = static_cast<float>(p) + whole, last = static_cast<float>(side - 1);
  const float clamped = at > 0.f ? (at < last ? at : last) : 0.f;  // a shift that is no number reads pixel 0
  return {static_cast<int>(clamped), at >= 0.f && at < last ? -shift - whole : 0.f};
}

float mix(float a, float b, float weight) { return fma(weight, b - a, a); }

// Between the pixel at `corner`, the one to its right and those below. The offsets are 0 where a weight is 0, so that
// nothing past the border is read.
float bilinear(const float* corner, int right, int below, float next_y, float next_x) {
  return mix(mix(corner[0], corner[right], next_x), mix(corner[below], corner[below + right], next_x), next_y);
}

}  // namespace

SineTable::SineTable(int modes, int side) : modes(modes), pitch(round_up(side, kPanel)) {
  const int period = 2 * (side - 1);
  std::vector<float> sine(period);
  for (int r = 0; r < period; ++r) sine[r] = grid_sine(1, r, side - 1);
  values.reset(new float[static_cast<int64_t>(modes) * pitch]());
  for (int mode = 1; mode <= modes; ++mode) {
    float* row = values.get() + static_cast<int64_t>(mode - 1) * pitch;
    for (int k = 0, r = 0; k < side; ++k, r = (r + mode) % period) row[k] = sine[r];
  }
}

SpatialScratch::SpatialScratch(const Geometry& g)
    : coefficients(new float[static_cast<int64_t>(g.rows->modes) * round_up(g.columns->modes, 4)]),
      half(new float[static_cast<int64_t>(g.rows->modes) * g.columns->pitch]),
      shift{std::unique_ptr<float[]>(new float[static_cast<int64_t>(g.height) * g.columns->pitch]),
            std::unique_ptr<float[]>(new float[static_cast<int64_t>(g.height) * g.columns->pitch])},
      unaligned_panel(new float[static_cast<int64_t>(std::max(g.rows->modes, g.columns->modes)) * kPanel + kPanel]) {}

float* SpatialScratch::panel() const {  // on a cache line
  const uintptr_t line = kPanel * sizeof(float), address = reinterpret_cast<uintptr_t>(unaligned_panel.get());
  return reinterpret_cast<float*>((address + line - 1) / line * line);
}

// Reads each pixel of dst, [channels, height, width], where the two fields of `scratch` move it.
static void move_pixels(const float* src, float* dst, const Geometry& g, Slot s, const SpatialScratch& scratch) {
  const int channels = g.channels, height = g.height,
            width = g.width;  // by value: no store can change them, so the loops vectorize
  const float scale_y = s.strength * static_cast<float>(height), scale_x = s.strength * static_cast<float>(width);
  // One output row at a time: first where each pixel is read, then the reading.
  std::vector<int> corner(width), right(width), below(width);
  std::vector<float> next_y(width), next_x(width);
  for (int y = 0; y < height; ++y) {
    const float* dy = scratch.shift[0].get() + static_cast<int64_t>(y) * g.columns->pitch;
    const float* dx = scratch.shift[1].get() + static_cast<int64_t>(y) * g.columns->pitch;
    for (int x = 0; x < width; ++x) {
      const Position from_y = displace(y, scale_y * dy[x], height), from_x = displace(x, scale_x * dx[x], width);
      corner[x] = from_y.pixel * width + from_x.pixel;
      right[x] = from_x.next != 0.f ? 1 : 0;
      below[x] = from_y.next != 0.f ? width : 0;
      next_y[x] = from_y.next;
      next_x[x] = from_x.next;
    }
    for (int channel = 0; channel < channels; ++channel) {
      const float* plane = src + channel * g.plane();
      float* out = dst + channel * g.plane() + static_cast<int64_t>(y) * width;
      for (int x = 0; x < width; ++x) out[x] = bilinear(plane + corner[x], right[x], below[x], next_y[x], next_x[x]);
    }
  }
}

void run_slot(Spatial, const SlotRun& run) {
  const auto [src, dst, g, s, filter, own, own_chain, own_slot, scratch] = run;
  const auto [key, chain, j] = field_place(s, own, own_chain, own_slot);
  if (!scratch) scratch.reset(new SpatialScratch(g));
  field(scratch->shift[0].get(), g, s, key, chain, j, Purpose::row_shift, *scratch);
  field(scratch->shift[1].get(), g, s, key, chain, j, Purpose::column_shift, *scratch);
  move_pixels(src, dst, g, s, *scratch);
}

}  // namespace prime
