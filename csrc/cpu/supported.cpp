// Which instruction sets this processor has. Compiled for any processor of the architecture (setup.py), because it
// runs before that is known.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cpu.h"

namespace prime {
namespace {

#if defined(__x86_64__)
bool bit(unsigned leaf, unsigned register_, int number) {  // of cpuid: registers eax, ebx, ecx, edx
  unsigned value[4] = {};
  __get_cpuid_count(leaf, 0, &value[0], &value[1], &value[2], &value[3]);
  return value[register_] >> number & 1;
}

bool has(const std::string& name) {
  __builtin_cpu_init();  // these ask the operating system too, for it must save the wide registers
  if (name == "SSE4.2") return __builtin_cpu_supports("sse4.2");
  if (name == "AVX") return __builtin_cpu_supports("avx");
  if (name == "AVX2") return __builtin_cpu_supports("avx2");
  if (name == "FMA") return __builtin_cpu_supports("fma");
  if (name == "F16C") return __builtin_cpu_supports("avx") && bit(1, 2, 29);
  if (name == "BMI1") return __builtin_cpu_supports("bmi");
  if (name == "BMI2") return __builtin_cpu_supports("bmi2");
  if (name == "LZCNT") return bit(0x80000001, 2, 5);
  if (name == "MOVBE") return bit(1, 2, 22);
  if (name == "AVX512F") return __builtin_cpu_supports("avx512f");
  if (name == "AVX512BW") return __builtin_cpu_supports("avx512bw");
  if (name == "AVX512CD") return __builtin_cpu_supports("avx512cd");
  if (name == "AVX512DQ") return __builtin_cpu_supports("avx512dq");
  if (name == "AVX512VL") return __builtin_cpu_supports("avx512vl");
  return false;
}
#else
bool has(const std::string&) { return true; }  // what the architecture has at least
#endif

}  // namespace

std::string lacking(const char* const* names) {
  std::string missing;
  for (; *names; ++names)
    if (!has(*names)) missing += (missing.empty() ? "" : ", ") + std::string(*names);
  return missing;
}

std::string missing_instructions() { return lacking(kCompiledFor); }

}  // namespace prime
