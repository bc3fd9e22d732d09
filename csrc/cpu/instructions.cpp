// Data alone, so that nothing here runs on a processor that lacks what it names.
#include "cpu.h"

namespace prime {

const char* const PRIME_INSTRUCTIONS::kCompiledFor[] = {
#ifdef __SSE4_2__
    "SSE4.2",
#endif
#ifdef __AVX__
    "AVX",
#endif
#ifdef __AVX2__
    "AVX2",
#endif
#ifdef __FMA__
    "FMA",
#endif
#ifdef __F16C__
    "F16C",
#endif
#ifdef __BMI__
    "BMI1",
#endif
#ifdef __BMI2__
    "BMI2",
#endif
#ifdef __LZCNT__
    "LZCNT",
#endif
#ifdef __MOVBE__
    "MOVBE",
#endif
#ifdef __AVX512F__
    "AVX512F",
#endif
#ifdef __AVX512BW__
    "AVX512BW",
#endif
#ifdef __AVX512CD__
    "AVX512CD",
#endif
#ifdef __AVX512DQ__
    "AVX512DQ",
#endif
#ifdef __AVX512VL__
    "AVX512VL",
#endif
    nullptr};

}  // namespace prime
