// What backward computes from where y was only on the way: tiles of dy from dz and saved bits.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// See PoolBackwardArgs. Channels that a blocked tile has beyond the tensor's are zero.
Status PoolBackwardTile(const PoolBackwardArgs& args, Parallel& parallel);

}  // namespace oocdnn::cpu
