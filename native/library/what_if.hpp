// Plans for machines that are not here.
#pragma once

#include <string>

#include "model/summary.hpp"

namespace oocdnn {

// The plan for a problem, operands in pageable memory, on the machine of the profile in `file`. No
// device is opened: the engines are those whose arithmetic the profile names, none is prepared, and
// bytes are estimates. kFileError where there is no such profile, kUnsupported where it names no
// engine, kOutOfMemory as Search.
Result<PlanSummary> PlanForProfile(const Problem& problem, const std::string& file, int64_t budget);

}  // namespace oocdnn
