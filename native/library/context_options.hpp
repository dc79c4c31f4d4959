// The options of a context.
#pragma once

#include <cstdint>
#include <string>

#include "backends/backends.hpp"
#include "model/plan.hpp"
#include "planner/planning.hpp"

namespace oocdnn {

struct ContextOptions {
  DeviceOptions device;
  std::string budget = "auto";   // "2GiB", "50%", "auto"
  std::string profile;           // path; "": the cache directory; "none": built-in guesses
  std::string plans;             // path; "": as the profile; "none": they are not remembered
  int64_t host_cap = 0;          // pinned bytes; 0: by the machine
  int64_t workspace = kNoLimit;  // the most bytes of an engine's workspace
  int busy_gpus = 0;             // other GPUs of the host that are busy during calls; for GPUs only
  bool reproducible = false;
  bool trace = false;
  Math math = Math::kFp32;
  Planning planning = Planning::kEstimate;
  double planning_seconds = kPlanningSeconds;
};

// The file of plans for contexts with these options; "" if plans are not stored, which is so behind
// wrappers that limit memory or inject failures.
std::string PlanFileOf(const ContextOptions& options);

}  // namespace oocdnn
