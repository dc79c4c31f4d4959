// The finishing pass that pools: it writes z, and bits for backward.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// As FinishTile, with the outputs of PoolOutput. Sums are in float or double.
Status FinishAndPool(const FinishArgs& args, Parallel& parallel);

}  // namespace oocdnn::cpu
