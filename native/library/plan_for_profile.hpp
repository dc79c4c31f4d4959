// Plans for machines that are not here.
#pragma once

#include <string>

#include "geom/placement.hpp"
#include "model/text/summary.hpp"

namespace oocdnn {

// The plan for a problem on the machine of the profile in `file`, operands on the device where they
// are said to be, else in pageable memory. No device is opened: the engines are those whose
// arithmetic the profile names, none is prepared, bytes are estimates, and what is on the device is
// copied into tiles there. `busy_gpus`: see Profile. kFileError where there is no such profile,
// kUnsupported where it names no engine, kOutOfMemory as Search.
Result<PlanSummary> PlanForProfile(const Problem& problem, const Placement& placement,
                                   const std::string& file, int64_t budget, int busy_gpus);

}  // namespace oocdnn
