// The null device: the least that a Device can be. Everything happens at once on the calling
// thread, tiles are plain, and the one engine is the suite's reference loop. A model to copy for a
// new back end, and a device for tests of what wraps one.
#pragma once

#include <memory>

#include "device/device.hpp"

namespace oocdnn::testing {

std::unique_ptr<Device> MakeNullDevice(int64_t memory_bytes);

}  // namespace oocdnn::testing
