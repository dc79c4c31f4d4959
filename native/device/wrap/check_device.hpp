// What tests ask a check device beyond wrap.hpp.
#pragma once

#include <string>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

// What the client has created and not destroyed by now, a sentence each. For the end of a test,
// before the device is destroyed.
std::vector<std::string> CheckLeaks(const Device& check_device);

}  // namespace oocdnn
