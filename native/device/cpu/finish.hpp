// The pass over a finished sum: scalars, scale, bias, residual, old output, activation.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// In place on the output tile, in float (double for f64 tiles), rounded once at the end. Padded
// lanes stay as they are. An opaque tile is taken element by element as raw memory, so it cannot
// have a bias or a scale: kUnsupported then.
Status FinishTile(const FinishArgs& args, Parallel& parallel);

}  // namespace oocdnn::cpu
