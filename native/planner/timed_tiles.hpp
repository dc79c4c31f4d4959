// Timed tiles: what runs of a problem's tiles took on the device, and how long its plans and calls.
//
// A tile computes for as long wherever the operands of its call lie. So the plan of a problem whose
// operands lie elsewhere this time begins with what was timed before.
#pragma once

#include <algorithm>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

struct TimedTile {
  Candidate candidate;
  double run_seconds = 0.0;
  double spent_seconds = 0.0;  // of the device, on finding out
};

// Of one problem, on engines that all requests number alike.
struct TimedTiles {
  std::vector<TimedTile> tiles;
  double planning_seconds = 0.0;  // that went into its plans
  double call_seconds = 0.0;      // that its calls were to take by their plans, all together
};

// Whether planning by and by may look for a better plan, after so many seconds of looking: for as
// long as a call takes, and for a share of what its calls have taken that it is likely to save.
inline bool MayLook(const TimedTiles& timed, double looked, double seconds_of_call) {
  constexpr double kShare = 0.05;
  return timed.planning_seconds + looked < seconds_of_call + kShare * timed.call_seconds;
}

// Null where no run of the candidate's tile was timed.
inline const TimedTile* Find(const TimedTiles& timed, const Candidate& candidate) {
  const auto found =
      std::find_if(timed.tiles.begin(), timed.tiles.end(), [&](const TimedTile& one) {
        return one.candidate.engine == candidate.engine && one.candidate.tiling == candidate.tiling;
      });
  return found == timed.tiles.end() ? nullptr : &*found;
}

}  // namespace oocdnn
