// What rows with gaps between them cost on top of their bytes.
#pragma once

#include "library/copy_bench.hpp"

namespace oocdnn {

// Seconds of one row; not ok where that could not be measured.
struct RowTimings {
  Timing near, far;
};

// The one that takes longer, of those that were measured.
Timing Slower(const Timing& a, const Timing& b);

RowTimings MeasureRows(const CopyBench& bench, int engine);
// What an engine's own kernels do not disturb, others' would: of all engines the most. Not ok where
// engines share their hardware.
RowTimings MeasureMostRows(const CopyBench& bench);

}  // namespace oocdnn
