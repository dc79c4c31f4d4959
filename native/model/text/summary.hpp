// PlanSummary: what a plan would do and why, as values, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/price/timeline.hpp"

namespace oocdnn {

struct RunnerUp {
  std::string plan;          // see model/text/plan_text.hpp
  std::string text, engine;  // see Describe
  double seconds = 0.0;      // predicted
  int64_t device_bytes = 0;  // estimated
};

struct PlanSummary {
  Problem problem;
  Tiling tiling;
  Cost cost;
  std::string plan;             // of the chosen candidate, see model/text/plan_text.hpp
  std::string description;      // the same for people, see Describe
  std::string engine;           // with its algorithm where it was prepared
  std::string machine;          // whose rates these are, see Profile
  bool prepared = false;        // false: no engine was asked, and `booked_bytes` is an estimate
  bool remembered = false;      // found by an earlier search
  double search_seconds = 0.0;  // that this one took, by the clock
  double floor_seconds = 0.0;   // the least by wires and arithmetic on any engine, see FloorOf
  double floor_compute_seconds = 0.0;  // by arithmetic alone, see ComputeFloorOf
  int64_t budget_bytes = 0, estimated_bytes = 0, booked_bytes = 0;
  int64_t host_bytes = 0;           // for staging, where all operands are in pageable memory
  std::vector<std::string> pinned;  // for the call, see Candidate
  std::optional<double> prepare_seconds, pin_seconds;  // see model/price/setup_cost.hpp
  std::vector<RunnerUp> runners_up;
  std::vector<std::string> refused;     // a sentence each, with the reason
  std::vector<std::string> unmeasured;  // see Assumptions
  std::vector<Interval> timeline;       // of the first and the last steps
};

RunnerUp RunnerUpOf(const PlanRequest& request, const RankedCandidate& ranked);

// Of the chosen candidate, those that it was chosen from and those that were refused. It counts as
// not prepared, and books what is estimated; host_bytes is left 0.
PlanSummary Summarize(const PlanRequest& request, const Profile& profile,
                      const RankedCandidate& chosen, const std::vector<RankedCandidate>& ranked,
                      const std::vector<std::string>& refused);

// Lines for people; the first is the problem string.
std::string ToText(const PlanSummary& summary);
// An object with the fields that docs/reference/plan.md lists, and "text" and "timeline".
std::string ToJson(const PlanSummary& summary);
// An array of the objects that a summary has for its runners-up.
std::string ToJson(const std::vector<RunnerUp>& plans);

}  // namespace oocdnn
