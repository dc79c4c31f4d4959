// What the finishing pass makes beside the sum's own tile: the pooled z, bits for backward.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// From a tile of finished values in float or double (see Made); nothing where nothing is to be
// made.
Status MakeTiles(const FinishArgs& args, Parallel& parallel);

}  // namespace oocdnn::cpu
