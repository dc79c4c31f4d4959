// The environment variables that a context is made by.
#pragma once

#include <string>

#include "capi/oocdnn.h"

namespace oocdnn {

// Environment variables that the options leave in effect, as they are set: "OOCDNN_BUDGET=1GB"; ""
// where there are none.
std::string VariablesOf(const oocdnn_options& given);

}  // namespace oocdnn
