// The CUDA back end of a build that has none.
#include <stdexcept>

#include "cuda/cuda.h"

namespace prime {
namespace {

[[noreturn]] void refuse() { throw std::runtime_error("prime_dali was built without CUDA; see prime-dali doctor"); }

}  // namespace

int sample_cuda(const SampleArgs&, void*) { refuse(); }
int reserve_cuda(int64_t*, int64_t, int64_t*, void*) { refuse(); }
int apply_cuda(const ApplyArgs&, void*, size_t, void*) { refuse(); }
size_t workspace_bytes(const ApplyArgs&) { refuse(); }
int new_bad_pixels(BadPixels**) { refuse(); }
void free_bad_pixels(BadPixels*) {}  // there is none
BadPixels take_bad_pixels(BadPixels*) { return {}; }
int bad_pixels_of_device(int, BadPixels**, int*) { refuse(); }
int wait_for_bad_pixels(int, int, BadPixels&, int&) { refuse(); }
const char* cuda_error(int) { return "unknown"; }

}  // namespace prime
