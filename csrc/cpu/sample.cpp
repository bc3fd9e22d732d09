#include "cpu.h"

namespace prime {

bool cpu_supported() {
  bool all = true;
#if defined(__AVX2__)
  all = all && __builtin_cpu_supports("avx2");
#endif
#if defined(__FMA__)
  all = all && __builtin_cpu_supports("fma");
#endif
#if defined(__AVX512F__)
  all = all && __builtin_cpu_supports("avx512f");
#endif
  return all;
}

void sample_cpu(const SampleArgs& a) {
  const int chains = static_cast<int>(a.law.chains), depth = static_cast<int>(a.law.depth);
  const int64_t words = row_words(chains, depth);
  for (int64_t r = 0; r < a.view_count * a.images; ++r) {
    const int64_t i = r % a.images;
    draw_row(a.law, a.seed, a.index[i], a.epoch[i * a.epoch_step], a.views[r / a.images],
             Row<int32_t>{a.plan + r * words, chains, depth});
  }
}

}  // namespace prime
