// What the driver that the client already uses says of its memory. Nothing is initialised here.
#pragma once

#include <cstdint>

#include "abi/cuda_driver.h"

namespace oocdnn::shim {

enum class Place {
  kDevice,    // a GPU reads it at its own speed; managed memory too, for cuDNN reads it
  kPinned,    // a GPU reads it across the wire
  kPageable,  // no GPU reads it
  kUnknown,   // the driver does not say
};
Place PlaceOf(const void* pointer);

// Whether work for the stream goes into a CUDA graph now.
bool IsCapturing(CUstream stream);

// The ordinal of the calling thread's device; 0 where the driver does not say.
int CurrentDevice();
// Bytes that the current device could give now; 0 where the driver does not say.
int64_t FreeBytes();

}  // namespace oocdnn::shim
