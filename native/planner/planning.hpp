// How much is done to find a plan.
#pragma once

#include <chrono>
#include <string>

#include "base/status.hpp"

namespace oocdnn {

enum class Planning {
  kEstimate,    // the model chooses; where engines are tried out, a run of what it chose is checked
  kGradual,     // the same, but while a problem's calls have taken little time, so does this
  kMeasure,     // of the best few by the model, runs are timed, and the fastest is kept
  kExhaustive,  // the model chooses among all tile lengths and loop orders
};

// What measuring and an exhaustive search may take; what has begun then is finished.
constexpr double kPlanningSeconds = 10.0;
constexpr double kMostPlanningSeconds = 1e8;

// "estimate", "gradual", "measure" or "exhaustive"; else kInvalidProblem.
Result<Planning> ParsePlanning(const std::string& text);

// A number above 0 and up to kMostPlanningSeconds; else kInvalidProblem.
Result<double> ParsePlanningSeconds(const std::string& text);

// When so many seconds from now have passed.
std::chrono::steady_clock::time_point DeadlineIn(double seconds);

}  // namespace oocdnn
