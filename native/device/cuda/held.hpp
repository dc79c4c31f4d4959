// What this process holds of each GPU's memory for oocdnn; oocdnn_device_bytes of abi/spill.h says
// it to the spill library, which keeps a limit.
#pragma once

#include <cstdint>

namespace oocdnn::cuda {

// `bytes` were allocated, or freed where they are negative. From any thread.
void CountHeld(int ordinal, int64_t bytes);

}  // namespace oocdnn::cuda
