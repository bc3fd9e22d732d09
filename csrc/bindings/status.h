// Converts the status of a call to the core (csrc/interface.h) to an exception.
#pragma once
#include <new>
#include <stdexcept>

#include "../interface.h"

namespace prime {

inline void require_success(int status) {
  switch (status) {
    case kSuccess: return;
    case kInvalidArgument: throw std::invalid_argument(prime_message());
    case kNoMemory: throw std::bad_alloc();
    default: throw std::runtime_error(prime_message());
  }
}

}  // namespace prime
