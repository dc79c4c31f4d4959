// What a piece of work costs beyond its bytes and operations.
#pragma once

#include "calibrate/copy_bench.hpp"

namespace oocdnn {

// A copy, a run and a step.
Status MeasurePieces(const CopyBench& bench, Profile* profile);

// From the end of a tiny transfer to the beginning of one that waits for it, and the little that
// it takes; 0 where nothing overlaps.
Timing MeasureHop(const CopyBench& bench, int engine);

}  // namespace oocdnn
