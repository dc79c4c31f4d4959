// The passes of a normalisation over tiles of activations.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// See NormArgs.
Status NormTile(const NormArgs& args, Parallel& parallel);

}  // namespace oocdnn::cpu
