// What a plan is drawn from, and how large it is, as numbers: each struct is made from a table of its fields.
// prime_dali/config.py gives the numbers in the order of the tables.
#pragma once
#include <cstdint>

namespace prime {

constexpr int kMinSide = 8, kMaxSide = 4096;  // pixels
constexpr int kMaxChains = 255, kMaxDepth = 255, kMaxCut = 4094, kMaxColorCut = 1024, kMaxFilter = 31, kMaxViews = 16;
constexpr int kMaxChannels = 16;
constexpr int64_t kMaxImages = (int64_t(1) << 31) - 1;
// Amplitudes of the distributions, and alpha. A strength is the product of two at most, of three in fn.prime.augment:
// 1e18. Up to kMaxStrength no sum over a filter, a field or a band leaves what float32 holds.
constexpr double kMaxAmplitude = 1e6;
constexpr float kMaxStrength = 1e20f;

// The primitives in the order of their numbers, from 1 on: PRIMITIVE(type, name). New ones come last, so that the draws
// of the others stay as they are. Each type has a header of its own, see slot.h.
#define PRIME_PRIMITIVES(PRIMITIVE, ...)     \
  PRIMITIVE(Spectral, spectral, __VA_ARGS__) \
  PRIMITIVE(Spatial, spatial, __VA_ARGS__)   \
  PRIMITIVE(Color, color, __VA_ARGS__)       \
  PRIMITIVE(Noise, noise, __VA_ARGS__)
#define PRIME_ENABLED(Type, name, FIELD) FIELD(name, whole, 0, 1, "1: this primitive is enabled")

// A PrimeConfig and an image size: FIELD(name, kind, least, largest, what it is). Kinds: `whole` and `real` numbers;
// `pixels`, sides of an image, which callers may give apart from the others.
#define PRIME_DISTRIBUTIONS(FIELD)                                                                             \
  FIELD(height, pixels, kMinSide, kMaxSide, "of the images")                                                   \
  FIELD(width, pixels, kMinSide, kMaxSide, "of the images")                                                    \
  FIELD(chains, whole, 1, kMaxChains, "of a row of the plan")                                                  \
  FIELD(depth, whole, 1, kMaxDepth, "slots of a chain")                                                        \
  PRIME_PRIMITIVES(PRIME_ENABLED, FIELD)                                                                       \
  FIELD(identity, whole, 0, 1, "1: the identity is one more choice in every slot")                             \
  FIELD(random_depth, whole, 0, 1, "1: the depth of a chain is U{1..depth}")                                   \
  FIELD(blend, whole, 0, 2, "0: Dirichlet over all; 1: Beta(1,1) x Dirichlet over chains; 2: the chain alone") \
  FIELD(arcsine, whole, 0, 1, "1: q ~ Beta(1/2, 1/2) for cut and temperature; 0: uniform")                     \
  FIELD(batch_draws, whole, 0, 1, "1: the images of a batch share what draw_slot() says; 0: nothing")          \
  FIELD(alpha, real, 0, kMaxAmplitude, "scale of every amplitude")                                             \
  FIELD(spectral_std_max, real, 0, kMaxAmplitude, "largest standard deviation of a tap")                       \
  FIELD(spatial_cut, whole, 0, kMaxCut, "0: random up to spatial_cut_max; never 1")                            \
  FIELD(spatial_cut_max, whole, 3, kMaxCut, "largest random cut")                                              \
  FIELD(color_variance_max, real, 0, kMaxAmplitude, "largest temperature T")                                   \
  FIELD(color_cut, whole, 0, kMaxColorCut, "0: random up to color_cut_max")                                    \
  FIELD(color_cut_max, whole, 1, kMaxColorCut, "largest random cut")                                           \
  FIELD(color_band, whole, 0, kMaxColorCut, "frequencies; 0: all up to the cut")                               \
  FIELD(noise_std, real, 0, kMaxAmplitude, "standard deviation")                                               \
  FIELD(wave_strength, real, 0, kMaxAmplitude, "mean strength of the waves after the mix; 0: none")

struct Distributions {
#define FIELD(name, kind, least, largest, what) double name;
  PRIME_DISTRIBUTIONS(FIELD)
#undef FIELD
};
constexpr int kDistributionFields = sizeof(Distributions) / sizeof(double);
constexpr const char* kDistributionNames[] = {
#define FIELD(name, kind, least, largest, what) #name,
    PRIME_DISTRIBUTIONS(FIELD)
#undef FIELD
};

// The size of a plan: FIELD(name, what it is).
#define PRIME_PLAN_SHAPE(FIELD)                                                                      \
  FIELD(chains, "of a row")                                                                          \
  FIELD(depth, "slots of a chain")                                                                   \
  FIELD(filter, "side of the spectral filter, odd")                                                  \
  FIELD(max_cut, "no spatial cut in the plan is larger; 0: the plan has no spatial slot")            \
  FIELD(max_band, "no color band in the plan holds more frequencies; 0: the plan has no color slot") \
  FIELD(waves, "1: rows end with the strength of their waves; 0: there are none")

struct PlanShape {
#define FIELD(name, what) int name;
  PRIME_PLAN_SHAPE(FIELD)
#undef FIELD
};
constexpr int kPlanShapeFields = sizeof(PlanShape) / sizeof(int);
constexpr const char* kPlanShapeNames[] = {
#define FIELD(name, what) #name,
    PRIME_PLAN_SHAPE(FIELD)
#undef FIELD
};

}  // namespace prime
