// What the kernels of one chunk of images share: sizes, and where things are in the workspace.
//
// Words: a row is one augmented image (one view of an image). `chain` numbers the chains of one row, and `chain_index`
// those of all rows of the chunk. A chain runs as passes.
// A pass is one spectral or spatial slot and the pointwise slots (color, noise) after it; a chain that starts with
// pointwise slots has a first pass without a filter or a displacement. All but the last pass of a chain write an
// intermediate image; the last passes of all chains run together with the mix, the normalization and the output.
#pragma once
#include <cuda_fp16.h>

#include "../core/primitives.h"
#include "cuda.h"
#include "displacement/precision.h"

namespace prime {

constexpr int kRows = 4;                           // a thread makes two columns of so many rows,
constexpr int kStrip = 2;                          // and of so many at a time where registers are scarce
constexpr int kThreads = 128;                      // of the kernels that go over pixels
constexpr int kBegin = 256, kWarps = kBegin / 32;  // of begin_kernel
constexpr int kK = 16;                             // depth of a tensor-core product
constexpr int kPolynomial = 21;       // a color band of at most so many frequencies is evaluated as polynomials
constexpr int kPolynomialWords = 24;  // per channel

struct alignas(16) Pass {
  const uint2* source;  // the image it starts from
  uint2* target;        // where its own goes, but that of the last pass of a chain
  const void* operand;  // the taps of a filter, a Field's shifts, or a Table
  float quantum;        // see Precision
  int8_t op;            // kSpectral, kSpatial; without either: kColor, a Table; or kIdentity, pointwise slots alone
  uint8_t first, last;  // its pointwise slots among the steps of the chain
  uint8_t unused;       // so that a copy reads nothing that was not written
};
static_assert(kMaxDepth <= 255, "numbers of steps are bytes");

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

// One spatial slot of the chunk. Its displacement field is D = S_y B S_x^T (core/primitives.h). Modes are kept in two
// halves, odd frequencies first: sines of odd frequencies are even about the middle of the grid and the others odd, so
// products are needed for half of the rows only.
struct alignas(16) Field {
  Stream stream;
  uint2* shift;  // [H, pitch] codes, or float2
  int chain, slot, cut;
  int ky;         // parity_pad of the vertical modes
  int split;      // coefficients and half products have a second half-precision number for the residual
  float quantum;  // see Precision
  float strength;
  int unused[3];
};

// Modes of one parity among 1 .. modes, rounded up to a multiple of kK.
__host__ __device__ __forceinline__ int parity_pad(int modes) { return ((modes + 1) / 2 + kK - 1) / kK * kK; }

// What is counted while a round is planned (see Work::pool); from kPasses on the lists in Work::to_do.
enum Count { kFields, kShifts, kImages, kPasses };

struct Work {
  ApplyArgs args;
  int views, images;  // views of every image; images of this chunk
  int64_t first_image;
  int rounds, round;     // see pool
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
  uint4 *sine_y, *sine_x;  // [tiles][k / 16][2: parity][2: value, residual][32 lanes]: operands of the products
  uint2* packed;           // [images, H, pitch] pixels, see pixels.cuh
  Chain* chains;           // [chain_count]
  Pass* passes;            // [chain_count, depth]
  Step* steps;             // [chain_count, depth]
  float* parameter;        // [chain_count, depth, parameters]
  Table* tables;           // [chain_count], of byte images
  int* admitted;           // how many images the first round takes, if there are two
  BadPixels* bad;          // of this chunk's float images; final_kernel() adds it to ApplyArgs::bad
  // What is planned for a round; in_round() makes these the second one's:
  Field* fields;  // [chain_count x depth]
  int* counts;    // [kPasses + depth - 1]: see Count
  int* to_do;     // [depth - 1, chain_count]: chains that have a first, second, ... pass before their last
  // From its start on, shifts of fields; from its end on, half products, and once they are used up the images between
  // passes, two a chain at most. Plans need a third of what they could need. So a chunk that could need more than there
  // is has room for half of that and one image more: a first round takes as many images as surely fit, and a second one
  // the others, mostly none.
  char* pool;
  int64_t pool_bytes;

  __host__ __device__ int chain_count() const { return images * views * args.shape.chains; }
  __host__ __device__ int counters() const { return kPasses + args.shape.depth - 1; }
  __host__ __device__ Work in_round(int number) const {
    Work w = *this;
    w.round = number, w.fields += number * int64_t(chain_count()) * args.shape.depth;
    w.counts += number * counters(), w.to_do += number * int64_t(chain_count()) * (args.shape.depth - 1);
    return w;
  }
  __device__ int in_first_round() const { return rounds == 1 ? images : *admitted; }  // images
  // Bytes of a field's shifts as codes, of an image, of a field's half products.
  __host__ __device__ int64_t code_bytes() const { return 4 * pixels; }
  __host__ __device__ int64_t image_bytes() const { return 8 * pixels; }
  __host__ __device__ int64_t half_bytes() const { return 16 * half_words; }
  __device__ uint2* image(int number) const {
    return reinterpret_cast<uint2*>(pool + pool_bytes - (number + 1) * image_bytes());
  }
  // [2: value, residual][tiles_x][ky / 16][2: parity][2: down, right][2: near, far][32 lanes], operands of the products
  __device__ uint4* half(int number) const {
    return reinterpret_cast<uint4*>(pool + pool_bytes - (number + 1) * half_bytes());
  }
  __device__ int64_t global_row(int row) const { return row / images * args.images + first_image + row % images; }
  __device__ Row<const int32_t> plan(int row) const {
    return {args.plan + global_row(row) * row_words(args.shape.chains, args.shape.depth), args.shape.chains,
            args.shape.depth};
  }
  __device__ float* parameters_of(int chain_index, int j) const {
    return parameter + (static_cast<int64_t>(chain_index) * args.shape.depth + j) * parameters;
  }
};

// Lays a chunk of `images` images out in memory at `base`, which may be null; returns how many bytes that takes.
size_t lay_out(Work& w, const ApplyArgs& args, int64_t images, int rounds, void* base);
struct Chunk {
  int64_t images;
  int rounds;    // see Work::pool
  size_t bytes;  // of the workspace
};
// As many images as `bytes` can hold, but at least one, and in chunks of one size; in one round if that fits.
Chunk chunk_that_fits(const ApplyArgs& args, size_t bytes);
// Large enough that the kernels of a chunk fill the GPU many times over; small beside a training step.
constexpr size_t kWorkspace = size_t(960) << 20;  // bytes

// The stages of a chunk, in this order; all but the first once a round.
[[nodiscard]] cudaError_t prepare(const Work& w, bool first, cudaStream_t stream);  // packs images, reads the plan
[[nodiscard]] cudaError_t fields(const Work& w, cudaStream_t stream);               // all displacement fields
[[nodiscard]] cudaError_t pass(const Work& w, int number, dim3 blocks, cudaStream_t stream);  // all but last passes
[[nodiscard]] cudaError_t mix(const Work& w, dim3 blocks, cudaStream_t stream);               // last ones, the output

}  // namespace prime
