// What rows with gaps between them cost on top of their bytes.
#pragma once

#include "calibrate/copy_bench.hpp"

namespace oocdnn {

// Seconds of one row; not ok where that could not be measured. No far row takes less than a near
// one.
struct RowTimings {
  Timing near, far;
};

// By direction: a GPU's drains lose more to far rows than its fetches do.
struct RowsBothWays {
  RowTimings fetch, drain;
};

RowsBothWays MeasureRows(const CopyBench& bench, int engine);
// What an engine's own kernels do not disturb, others' would: of all engines the most. Not ok where
// engines share their hardware.
RowsBothWays MeasureMostRows(const CopyBench& bench);

}  // namespace oocdnn
