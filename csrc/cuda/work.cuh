// What the kernels of one chunk of images share: sizes, and where things are in the workspace.
//
// Words: a row is one augmented image (one view of an image); a unit is one chain of one row. A chain runs as passes.
// A pass is one spectral or spatial slot and the pointwise slots (color, noise) after it; a chain that starts with
// pointwise slots has a first pass without a filter or a displacement. All but the last pass of a chain write an
// intermediate image; the last passes of all chains run together with the mix, the normalisation and the output.
#pragma once
#include <cuda_fp16.h>

#include "../core/primitives.h"
#include "cuda.h"

namespace prime {

constexpr int kRows = 4;              // a thread makes two columns of so many rows,
constexpr int kStrip = 2;             // and of so many at a time where registers are scarce
constexpr int kThreads = 256;         // of the kernels that go over pixels
constexpr int kK = 16;                // depth of a tensor-core product
constexpr int kPolynomial = 21;       // a color band of at most so many frequencies is evaluated as polynomials
constexpr int kPolynomialWords = 24;  // per channel

struct alignas(16) Pass {
  const uint2* source;  // the image it starts from
  const void* operand;  // the taps of a filter, a Field's shifts, or a Table
  int op;               // kSpectral, kSpatial; without either: kColor, a Table; or kIdentity, pointwise slots alone
  float unit;           // see Field
  int first, last;      // its pointwise slots among the steps of the chain
};

struct alignas(16) Step {  // a pointwise slot
  const float* parameters;
  int primitive, slot, first, count;  // color: the band
  float strength;
  int unused;  // so that a copy reads nothing that was not written
};

struct alignas(16) Chain {
  Pass last;
  int passes;  // -1: a slot is one that no draw could have made
  float weight;
  int unused[2];
};

// What the color maps that a chain begins with make of the 256 values of a byte, by channel.
using Table = float[3][256];

// A pixel's shifts, down and right, are kept side by side. Mostly as 16-bit codes, 0x8000 + round(shift / unit), in one
// word: put into the low half of a float that begins with kCodeBits, a code is the number kCodeZero + shift / unit.
// Where that would be too coarse, as two floats: then `unit` is kWide.
constexpr uint32_t kCodeBits = 0x4b000000u;
constexpr float kCodeZero = 8421376.f;  // 2^23 + 0x8000
constexpr float kWide = 1.f;

// One spatial slot of the chunk. Its displacement field is D = S_y B S_x^T (core/primitives.h). Modes are kept in two
// halves, odd frequencies first: sines of odd frequencies are even about the middle of the grid and the others odd, so
// products are needed for half of the rows only.
struct alignas(16) Field {
  Stream stream;
  int chain, slot, cut;
  int ky;     // parity_pad of the vertical modes
  int split;  // coefficients and half products have a second half-precision number for the rest
  float unit;
  float strength;
  int unused;
};

// Modes of one parity among 1 .. modes, rounded up to a multiple of kK.
__host__ __device__ __forceinline__ int parity_pad(int modes) { return ((modes + 1) / 2 + kK - 1) / kK * kK; }

struct Work {
  ApplyArgs args;
  int views, images;  // views of every image; images of this chunk
  int64_t first_image;
  int processors;        // of the GPU
  int pairs, pitch;      // of pixels in a row; pixels of a row in the workspace, a multiple of 4
  uint32_t per_pair;     // 2^32 / pairs, rounded up
  uint32_t per_quad;     // the same of pitch / 4
  int ky, kx;            // parity_pad of the modes along each axis, for the largest cut
  int tiles_y, tiles_x;  // of 16 rows, of one half of an axis
  int64_t pixels;        // of an image in the workspace
  int64_t half_words;    // room of a Field's half products, in uint4
  int parameters;        // floats of a slot
  // All in the workspace, [shape]:
  uint4 *sine_y, *sine_x;  // [tiles][k / 16][2: parity][2: value, rest][32 lanes]: operands of the products
  uint2* packed;           // [images, H, pitch] pixels, see pixels.cuh
  uint2* image[2];         // [units, H, pitch], between passes
  Chain* chains;           // [units]
  Pass* passes;            // [units, depth]
  Step* steps;             // [units, depth]
  float* parameter;        // [units, depth, parameters]
  Table* tables;           // [units], of byte images
  Field* fields;           // [units x depth]
  int* counts;             // [depth]: of fields, and of units that have a first, second, ... pass before their last
  int* to_do;              // [depth - 1, units]: those units
  uint2* shift;            // [fields, H, pitch] float2; codes fill the first half
  uint4* half;             // [fields, half_words], where the chains' images will be: [2: value, rest][tiles_x][ky / 16]
                           // [2: parity][2: down, right][2: near, far][32 lanes], operands of the products

  __host__ __device__ int units() const { return images * views * args.chains; }
  __device__ int64_t global_row(int row) const { return row / images * args.images + first_image + row % images; }
  __device__ Row<const int32_t> plan(int row) const {
    return {args.plan + global_row(row) * row_words(args.chains, args.depth), args.chains, args.depth};
  }
  __device__ float* parameters_of(int unit, int j) const {
    return parameter + (static_cast<int64_t>(unit) * args.depth + j) * parameters;
  }
};

// Lays a chunk of `images` images out in memory at `base`, which may be null; returns how many bytes that takes.
size_t lay_out(Work& w, const ApplyArgs& args, int64_t images, void* base);
// Images of a chunk, as many as `bytes` can hold but at least one, and in chunks of one size.
int64_t images_that_fit(const ApplyArgs& args, size_t bytes);
// Large enough that the kernels of a chunk fill the GPU many times over; small beside a training step.
constexpr size_t kWorkspace = size_t(960) << 20;  // bytes

void begin(const Work& w, bool first, cudaStream_t stream);  // packs images, reads the plan
void fields(const Work& w, cudaStream_t stream);             // all displacement fields

}  // namespace prime
