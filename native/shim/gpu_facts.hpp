// What the driver that the client already uses says of its memory. Nothing is initialised here.
#pragma once

#include <cstdint>

#include "abi/cuda_driver.h"
#include "base/location.hpp"

namespace oocdnn::shim {

// Of the driver's answer: managed memory counts as the device's, for cuDNN reads it; kUnknown where
// the driver does not say.
Tier TierOf(const void* pointer);

// Whether work for the stream goes into a CUDA graph now.
bool IsCapturing(CUstream stream);

// The ordinal of the calling thread's device; 0 where the driver does not say.
int CurrentDevice();
// Bytes that the current device could give now; 0 where the driver does not say.
int64_t FreeBytes();

}  // namespace oocdnn::shim
