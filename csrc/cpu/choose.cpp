// Chooses at run time which compilation of the back end works on pixels. Compiled for any processor of the
// architecture, as supported.cpp is.
#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "cpu.h"

namespace prime {

#ifdef PRIME_AVX512
namespace avx512 {
extern const char* const kCompiledFor[];
BadPixels apply_images(const ApplyArgs& args, int threads);
}  // namespace avx512
#endif

namespace {

struct Compilation {
  const char* name;
  const char* const* needs;  // instruction sets; ends with null
  BadPixels (*apply)(const ApplyArgs&, int threads);
};

const Compilation kCompilations[] = {  // the best first; the last one runs wherever the back end does
#ifdef PRIME_AVX512
    {"avx512", avx512::kCompiledFor, avx512::apply_images},
#endif
    {"baseline", baseline::kCompiledFor, baseline::apply_images}};

const Compilation* best() {
  for (const Compilation& one : kCompilations)
    if (lacking(one.needs).empty()) return &one;
  return &kCompilations[sizeof kCompilations / sizeof *kCompilations - 1];
}

// `origin`: who names it, for the error.
const Compilation* named(const std::string& name, const char* origin) {
  std::string known;
  for (const Compilation& one : kCompilations) {
    if (name == one.name) {
      const std::string missing = lacking(one.needs);
      if (missing.empty()) return &one;
      throw std::invalid_argument(std::string(origin) + ": " + name + " needs " + missing +
                                  ", which this processor lacks");
    }
    known += (known.empty() ? "" : " or ") + std::string(one.name);
  }
  throw std::invalid_argument(std::string(origin) + ": expected " + known + ", got '" + name + "'");
}

std::atomic<const Compilation*> chosen{nullptr};

const Compilation& current() {
  const Compilation* found = chosen;
  if (!found) {
    const char* wanted = std::getenv("PRIME_DALI_INSTRUCTIONS");
    chosen = found = wanted && *wanted ? named(wanted, "PRIME_DALI_INSTRUCTIONS") : best();
  }
  return *found;
}

}  // namespace

const char* instructions() { return current().name; }

void use_instructions(const char* name) { chosen = named(name, "instructions"); }

BadPixels apply_cpu(const ApplyArgs& args, int threads) { return current().apply(args, threads); }

}  // namespace prime
