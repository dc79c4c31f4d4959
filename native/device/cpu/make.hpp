// The finishing pass with what it makes beside the sum's own tile: the pooled z, bits for backward.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// See FinishTile, and Made: that is made of sums in float or double.
Status FinishAndMake(const FinishArgs& args, Parallel& parallel);

}  // namespace oocdnn::cpu
