// Copies between an engine's tiles and memory of the device's own.
#pragma once

#include "calibrate/copy_bench.hpp"

namespace oocdnn {

// Sets what the engine's wire is inside the device, in both memory orders. Nothing where that
// memory is the host's.
void MeasureInside(const CopyBench& bench, int engine, Profile* profile);

}  // namespace oocdnn
