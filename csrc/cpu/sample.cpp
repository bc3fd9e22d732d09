// Draws plans on the CPU, by the arithmetic of core/plan.h.
#include "../core/check.h"
#include "cpu.h"

namespace prime {

void sample_cpu(const SampleArgs& a) {
  check(a);
  check_epochs(a);
  for (int64_t r = 0; r < a.view_count * a.images; ++r) {
    const int64_t view = a.views[r / a.images];
    const Row<int32_t> row = a.row(r);
    const Keys keys = a.keys(r, view);
    for (int part = 0; part < row_parts(row.chains, row.depth); ++part)
      draw_part(a.distributions, keys, view, part, row);
  }
}

}  // namespace prime
