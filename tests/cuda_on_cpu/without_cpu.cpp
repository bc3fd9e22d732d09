// The CPU back end is left out where the CUDA sources are compiled for the CPU: the package has it.
#include <stdexcept>

#include "cpu/cpu.h"

namespace prime {

std::string missing_instructions() { return {}; }
const char* instructions() { return "none"; }
void use_instructions(const char*) { throw std::runtime_error("compiled without the CPU back end"); }
void sample_cpu(const SampleArgs&) { throw std::runtime_error("compiled without the CPU back end"); }
BadPixels apply_cpu(const ApplyArgs&, int) { throw std::runtime_error("compiled without the CPU back end"); }

}  // namespace prime
