// What kernels read and write in the workspace of one chunk of images. Each kernel takes a struct of its own, made of
// the views here that it uses; workspace.cuh has the memory behind them.
//
// Words: a row is one augmented image (one view of an image). `chain` numbers the chains of one row, and `chain_index`
// those of all rows of the chunk. A chain runs as passes.
// A pass is one spectral or spatial slot and the pointwise slots (color, noise) after it; a chain that starts with
// pointwise slots has a first pass without a filter or a displacement. All but the last pass of a chain write an
// intermediate image; the last passes of all chains run together with the mix, the normalization and the output.
#pragma once
#include <cuda_fp16.h>

#include "../core/image.h"
#include "../core/primitives.h"

namespace prime {

constexpr int kRows = 4;                           // a thread makes two columns of so many rows,
constexpr int kStrip = 2;                          // and of so many at a time where registers are scarce
constexpr int kThreads = 128;                      // of the kernels that go over pixels
constexpr int kBegin = 256, kWarps = kBegin / 32;  // of begin_kernel
constexpr int kK = 16;                             // depth of a tensor-core product
constexpr int kTogether = 4;                       // channels of a pixel at most; images of more run by so many

constexpr int kTabulated = 127;  // Pass::op

struct alignas(16) Pass {
  const void* source;       // the image it starts from
  void* target;             // where its own goes, but that of the last pass of a chain
  const void* operand;      // the taps of a filter, a Field's shifts, or a Table
  float quantization_step;  // see Precision
  int8_t op;  // a primitive that is not pointwise; or kTabulated, a Table; or kIdentity, pointwise slots alone
  uint8_t first, last;  // its pointwise slots among the steps of the chain
  uint8_t unused;       // so that a copy reads nothing that was not written
};
static_assert(kMaxDepth <= 255, "numbers of steps are bytes");

struct alignas(16) Step {  // a pointwise slot
  const float* parameters;
  int primitive, slot, first, count;  // color: the band
  float strength;
  int first_channel;  // of the image, of those that run together
};

// Two neighboring values of one channel that a pointwise slot meets.
struct StepPlace {
  Step step;
  Key key;
  int chain, height;  // height of the image
  int channel, x, y;  // of the left one; of those that run together
};

struct alignas(16) Chain {
  Pass last;
  int passes;  // -1: a slot is one that no draw could have made
  float weight;
  int unused[2];
};

// What the slots that a chain begins with make of the 256 values of a byte, by channel.
template <int kC>
using Table = float[kC][256];
struct Tables {
  float* values;  // [chain_count, channels, 256]
  int channels;   // that run together
  __device__ float* of(int chain_index) const { return values + static_cast<int64_t>(chain_index) * channels * 256; }
};

// One spatial slot of the chunk. Its displacement field is D = S_y B S_x^T (core/spatial.h). Modes are kept in two
// halves, odd frequencies first: sines of odd frequencies are even about the middle of the grid and the others odd, so
// products are needed for half of the rows only.
struct alignas(16) Field {
  Key key;
  uint2* shift;  // [H, pitch] codes, or float2
  int chain, slot, cut;
  int ky;                   // parity_pad of the vertical modes
  int split;                // coefficients and half products have a second half-precision number for the residual
  float quantization_step;  // see Precision
  float strength;
  int unused[3];
};

// Modes of one parity among 1 .. modes, rounded up to a multiple of kK.
__host__ __device__ __forceinline__ int parity_pad(int modes) { return ((modes + 1) / 2 + kK - 1) / kK * kK; }

// The chunk's rows of the plan, one view after another.
struct PlanView {
  const int32_t* words;  // [views, batch, row_words(shape)], from the chunk's first image on
  int64_t batch;         // images of the whole batch
  int images, views;     // images of the chunk; views of every image
  PlanShape shape;
  bool bytes;  // the images are bytes: what a chain begins with may become a table
  __host__ __device__ int chain_count() const { return images * views * shape.chains; }
  __device__ Row<const int32_t> row(int row) const {
    const int64_t at = row / images * batch + row % images;
    return row_of(words, at, shape);
  }
};

// 2^32 / count, rounded up: __umulhi(n, division_word(count)) is n / count for any n that numbers pixels of an image.
inline uint32_t division_word(int count) { return static_cast<uint32_t>(((uint64_t(1) << 32) + count - 1) / count); }

// Images of the workspace, all of one size, and how threads share the pixels of one.
struct ImageShape {
  int height, width;
  int pitch;          // pixels of a row in the workspace, a multiple of 4
  int pairs;          // of pixels in a row
  uint32_t per_pair;  // division_word(pairs)
  int64_t pixels;     // of an image in the workspace, height x pitch
};

// The parameters of slots: taps, coefficients of color maps.
struct Parameters {
  float* values;  // [chain_count x depth, words]
  int words;      // of a slot
  __device__ float* of(int64_t slot) const { return values + slot * words; }
};

// Sines of one axis as the first factor of the tensor-core products, see make_sines().
struct Sines {
  uint4* words;      // [tiles][steps][2: parity][2: value, residual][32 lanes]
  int tiles, steps;  // of 16 rows, of one half of the axis; of kK modes of each parity, for the largest cut
};

// What is counted while a round is planned (see Pool); from kPasses on the lists in Round::to_do.
enum Count { kFields, kShifts, kImages, kPasses };

// What is planned for a round; the second round's follows the first one's.
struct Round {
  Field* fields;  // [chain_count x depth]
  int* counts;    // [kPasses + depth - 1], see Count
  int* to_do;     // [depth - 1, chain_count]: chains that have a first, second, ... pass before their last
  __host__ __device__ Round after(int rounds, const PlanView& plan) const {
    const int64_t chains = rounds * int64_t(plan.chain_count());
    const int depth = plan.shape.depth;
    return {fields + chains * depth, counts + rounds * (kPasses + depth - 1), to_do + chains * (depth - 1)};
  }
};

// From its start on, shifts of fields; from its end on, half products, and once they are used up the images between
// passes, two a chain at most. Plans need a third of what they could need. So a chunk that could need more than there
// is has room for half of that and one image more: a first round takes as many images as surely fit, and a second one
// the others, mostly none.
struct Pool {
  char* start;
  int64_t bytes;
  int64_t pixels;       // of an image in the workspace
  int64_t image_bytes;  // of these
  int64_t half_words;   // room of a field's half products, in uint4
  // Bytes of a field's shifts as codes, and of its half products.
  __host__ __device__ int64_t code_bytes() const { return 4 * pixels; }
  __host__ __device__ int64_t half_bytes() const { return 16 * half_words; }
  __device__ uint2* shifts(int number) const { return reinterpret_cast<uint2*>(start + number * code_bytes()); }
  __device__ void* image(int number) const { return start + bytes - (number + 1) * image_bytes; }
  // [2: value, residual][tiles_x][ky / 16][2: parity][2: down, right][2: near, far][32 lanes], operands of the products
  __device__ uint4* half_products(int number) const {
    return reinterpret_cast<uint4*>(start + bytes - (number + 1) * half_bytes());
  }
};

// How many of a chunk's images the first round takes. `admitted`: null if there is one round.
__device__ __forceinline__ int in_first_round(const int* admitted, int images) { return admitted ? *admitted : images; }

// What a pass reads besides what it points to.
struct PassInputs {
  ImageShape shape;
  PlanView plan;      // Philox keys of rows, and the size of filters
  const Step* steps;  // [chain_count, depth]
};

}  // namespace prime
