// What a piece of work costs beyond its bytes and operations.
#pragma once

#include "calibrate/copy_bench.hpp"

namespace oocdnn {

// Measures the fixed time of a copy, of an engine's run and of a step of the tile loop, and stores
// it in the profile.
Status MeasurePieces(const CopyBench& bench, Profile* profile);

// From the end of a tiny transfer to the beginning of one that waits for it, and the little that
// it takes; 0 where nothing overlaps.
Timing MeasureHop(const CopyBench& bench, int engine);

}  // namespace oocdnn
