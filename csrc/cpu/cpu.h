// The CPU back end. Throws std::invalid_argument for arguments that core/check.h refuses, and std::bad_alloc when
// scratch memory cannot be had; never anything else.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "../core/image.h"

// What works on pixels is compiled once for every processor that the package runs on, and on x86-64 once more for
// AVX-512 (setup.py). Types, and functions that take none of these, are in a namespace of this name, so that the linker
// takes no function of one for the other's. choose.cpp chooses at run time.
#ifndef PRIME_INSTRUCTIONS
#define PRIME_INSTRUCTIONS baseline
#endif

namespace prime {

// The instruction sets that the back end was compiled for (by default on x86-64 those of x86-64-v3: AVX2, FMA, F16C,
// ...) and this processor lacks, with commas. Nothing else here may be called unless that is empty.
std::string missing_instructions();

void sample_cpu(const SampleArgs& args);

// What of the input is no pixel: then the output is not to be used.
BadPixels apply_cpu(const ApplyArgs& args, int threads);

// Which compilation apply_cpu runs, "baseline" or "avx512": both make the same bits. That is the one that was asked for
// last, or else the one that PRIME_DALI_INSTRUCTIONS names, or else the best that this processor has.
const char* instructions();
void use_instructions(const char* name);

// ---- between the files of this folder ----

std::string lacking(const char* const* names);  // those that this processor lacks, with commas

inline namespace PRIME_INSTRUCTIONS {

extern const char* const kCompiledFor[];  // instruction sets; ends with null

BadPixels apply_images(const ApplyArgs& args, int threads);

// sin(pi mode k / (side - 1)) for mode = 1 .. modes and k = 0 .. side - 1, rows `pitch` apart and zero-filled.
struct SineTable {
  int modes = 0, pitch = 0;
  std::unique_ptr<float[]> values;  // [modes, pitch]
  SineTable() = default;
  SineTable(int modes, int side);
};

struct Geometry {
  int channels, height, width;
  const SineTable *rows, *columns;  // of the vertical and of the horizontal axis
  int64_t plane() const { return static_cast<int64_t>(height) * width; }
};

// Memory of one thread for spatial slots.
struct SpatialScratch {
  std::unique_ptr<float[]> coefficients;     // [modes of rows, modes of columns rounded up to 4]
  std::unique_ptr<float[]> half;             // [modes of rows, pitch], the first product
  std::unique_ptr<float[]> shift[2];         // [height, pitch], down and right
  std::unique_ptr<float[]> unaligned_panel;  // [most modes of an axis, columns of a panel], and a cache line
  explicit SpatialScratch(const Geometry& g);
  float* panel() const;
};

// n normals of one run (core/random.h), `out` has room for 4 * run_blocks(n).
void normal_run(float* out, int n, Key key, uint32_t base, int chain, int slot, Purpose purpose, int channel = 0);

// A slot to run on one image. Functions copy it first, so that no store to dst can change what they read.
struct SlotRun {
  const float* src;  // [channels, height, width]
  float* dst;        // the same, not overlapping
  const Geometry& geometry;
  Slot slot;
  int filter;  // side of the spectral filter
  Key key;
  int chain, j;                              // where in the row the slot is
  std::unique_ptr<SpatialScratch>& scratch;  // made when the first spatial slot comes
};

}  // namespace PRIME_INSTRUCTIONS

// Values of dst are in [0, 1] but for NaN.
void run_slot(Spectral, const SlotRun& run);
void run_slot(Spatial, const SlotRun& run);
void run_slot(Color, const SlotRun& run);
void run_slot(Noise, const SlotRun& run);

// Adds the waves of the row with this key to an image, [channels, height, width], and clips it to [0, 1].
void add_waves(float* image, const Geometry& g, Key key, float strength);

}  // namespace prime
