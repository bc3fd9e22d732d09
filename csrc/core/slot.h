// One place of a plan, and what the descriptor of a primitive says about it.
//
// A primitive is a type, named in PRIME_PRIMITIVES, with a header of its own: its arithmetic for host and device, and
//   kPointwise        a pixel depends on the same pixel alone
//   kTable            it may be part of a table of the 256 values of a byte (then it is pointwise, and the same
//                     everywhere in a channel)
//   kParameters       the GPU makes parameters of a slot before it runs
//   valid(s, shape)   whether a draw could have made this slot, its strength aside
//   draw(d, words)    the slot that four random words make; its strength is without alpha
// Whatever depends on the primitive asks visit() (primitives.h) for the type, so the compiler names what is missing.
#pragma once
#include "distributions.h"
#include "random.h"

namespace prime {

enum Primitive : int32_t {
  kIdentity = 0,
#define PRIMITIVE(Type, name, ...) k##Type,
  PRIME_PRIMITIVES(PRIMITIVE)
#undef PRIMITIVE
};

struct Slot {
  int32_t primitive;
  float strength;  // spectral, noise: standard deviation; spatial: sqrt(T); color: standard deviation sqrt(T)
  int32_t first;   // color: first frequency of the band; spatial: see field_place() in spatial.h
  int32_t last;    // color: last frequency of the band; spatial: cut c
};
static_assert(sizeof(Slot) == 16, "a slot is four words");

}  // namespace prime
