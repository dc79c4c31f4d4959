#include "planner/planning.hpp"

#include "geom/words.hpp"

namespace oocdnn {

Result<Planning> ParsePlanning(const std::string& text) {
  if (text == "estimate") return Planning::kEstimate;
  if (text == "gradual") return Planning::kGradual;
  if (text == "measure") return Planning::kMeasure;
  if (text == "exhaustive") return Planning::kExhaustive;
  return Error(Code::kInvalidProblem,
               "planning '%s': write estimate, gradual, measure or exhaustive", text.c_str());
}

Result<double> ParsePlanningSeconds(const std::string& text) {
  double seconds = 0.0;
  if (ReadNumber(text, &seconds) && seconds > 0.0 && seconds <= kMostPlanningSeconds)
    return seconds;
  return Error(Code::kInvalidProblem, "%s seconds of planning: write a number above 0, up to %.0e",
               text.c_str(), kMostPlanningSeconds);
}

std::chrono::steady_clock::time_point DeadlineIn(double seconds) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> limit(seconds);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
}

}  // namespace oocdnn
