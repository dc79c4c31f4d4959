// The constants of this machine: measured on the device in the first call, in well under two
// seconds, then kept in the user's cache directory.
#pragma once

#include "device/device.hpp"
#include "model/profile.hpp"

namespace oocdnn {

// The kept profile of this device where there is one, else a measured one, which is then kept.
// Never fails: what cannot be measured keeps its built-in guess. `path` "" means the cache
// directory; "none" measures nothing and keeps nothing.
Profile ProfileOf(Device& device, const std::string& path);

// Measures now.
Profile Measure(Device& device);

}  // namespace oocdnn
