// Numbers for what is timed: of zeros a GPU, drawing less power, computes up to a sixth faster.
#pragma once

#include "device/device.hpp"

namespace oocdnn {

// Fills device memory, whose elements are of that type, with numbers between -0.5 and 0.5 that look
// random, and repeat from some way on; with zeros where the device computes on the host, which does
// not care. Returns when it is done.
Status FillRandomly(Device& device, Stream stream, void* buffer, int64_t bytes, DType dtype);

}  // namespace oocdnn
