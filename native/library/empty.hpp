// Calls that have nothing to convolve.
#pragma once

#include "device/device.hpp"
#include "geom/program.hpp"
#include "memory/arena.hpp"

namespace oocdnn {

// An empty batch: outputs without elements are left alone, dw and db become beta * old. On return
// it is done; the caller's stream must have come to this call.
Status RunEmpty(Device& device, const Problem& problem, const OperandViews& tensors, Arena& arena);

}  // namespace oocdnn
