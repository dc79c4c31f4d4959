// `oocdnn info` as JSON: what is here, what is missing, what to do.
#pragma once

#include <string>

#include "library/context.hpp"

namespace oocdnn {

std::string InfoJson(Context& context);

}  // namespace oocdnn
