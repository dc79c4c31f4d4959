// The price of a plan that the caller names, by the profile alone.
#pragma once

#include <string>

#include "model/plan.hpp"

namespace oocdnn {

// A plan as a caller names it.
struct Split {
  AxisArray pieces{1, 1, 1, 1, 1, 1, 1};  // on each axis
  LoopOrder order{};                      // outermost first
  int slots = 1;                          // of each operand
};

// A plan and what it would take. `cost.device_bytes` is an estimate, which no budget bounds.
struct PricedPlan {
  Candidate candidate;
  std::string engine, text;  // `text`: the candidate for people
  Cost cost;
};

// On the engine that is predicted to be the fastest; nothing is prepared. kInvalidProblem for a
// split that is none of the problem's, kUnsupported where there is no engine.
Result<PricedPlan> PriceSplit(const PlanRequest& request, const Split& split,
                              const Profile& profile);

}  // namespace oocdnn
