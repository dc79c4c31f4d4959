// Plan requests from the arguments of the testing library's C functions.
#pragma once

#include <string>

#include "model/plan.hpp"

namespace oocdnn::testing {

// Engines are named "onednn+symmetric,direct+invariant", in order of preference; "bounce=1024"
// among them is no engine, but the bytes of bounce memory.
PlanRequest RequestOf(const Problem& problem, int64_t budget, const std::string& engines);

}  // namespace oocdnn::testing
