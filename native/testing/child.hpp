// Work in a forked child.
#pragma once

#include <functional>

#include "base/status.hpp"

namespace oocdnn::testing {

// What `work` comes to in a forked child. One that hangs is killed after a minute.
Status InChild(const std::function<Status()>& work);

}  // namespace oocdnn::testing
