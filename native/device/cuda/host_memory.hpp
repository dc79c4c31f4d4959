// Pinned host memory of exact sizes.
#pragma once

#include "device/cuda/driver.hpp"

namespace oocdnn::cuda {

// Maps pages (huge ones where the system has them), touches them with several threads, and
// registers them with the driver: ten times as fast as the driver's own allocation, and not rounded
// up to a power of two. A forked child does not inherit them. The GPU's context must be current.
// kOutOfMemory where the system or the driver gives no more.
Result<void*> AllocatePinned(const Driver& driver, int64_t bytes);
void FreePinned(const Driver& driver, void* memory, int64_t bytes);

// Registers memory of the caller's; the pages at its ends as a whole. kDeviceError where a part of
// it is registered already.
Status Pin(const Driver& driver, void* memory, int64_t bytes);
void Unpin(const Driver& driver, void* memory);

}  // namespace oocdnn::cuda
