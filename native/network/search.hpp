// Local search for the choices of a step: a few are changed at a time, and the scheduler says what
// that costs (simulated annealing).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.hpp"
#include "network/scheduler.hpp"

namespace oocdnn::network {

struct SearchOptions {
  int64_t limit = 0;     // device bytes
  int64_t trials = 0;    // changes that are tried; the search cools down over them
  uint64_t seed = 0;     // of the random numbers: the same for the same result
  double warmth = 0.0;   // seconds of the step by which a change may make it worse at first
  double seconds = 0.0;  // at most; where it is reached first, the result depends on the machine
};

// Told of trials that are done, every few milliseconds; false ends the search.
using Progress = std::function<bool(int64_t done, int64_t trials)>;

// Improves `choices`, which CheckChoices accepts, in place. The result is what passes the limit by
// the fewest bytes, and of that the fastest, so never worse than what it began with. Where
// `progress` ended it, kInterrupted, with the best choices so far in place.
Status Improve(Scheduler* scheduler, const SearchOptions& options, const Progress& progress,
               std::vector<Choice>* choices);

}  // namespace oocdnn::network
