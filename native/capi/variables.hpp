// The environment variables that a context is made by.
#pragma once

#include <string>

#include "capi/oocdnn.h"

namespace oocdnn {

// Those that the options leave room for, as the environment sets them: "OOCDNN_BUDGET=1GB"; ""
// where there are none.
std::string VariablesOf(const oocdnn_options& given);

}  // namespace oocdnn
