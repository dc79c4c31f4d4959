// Timed tiles: what runs of a problem's tiles took on the device.
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
};

// Of one problem, on engines that all requests number alike.
using TimedTiles = std::vector<TimedTile>;

// Null where no run of the candidate's tile was timed.
inline const TimedTile* Find(const TimedTiles& timed, const Candidate& candidate) {
  const auto found = std::find_if(timed.begin(), timed.end(), [&](const TimedTile& one) {
    return one.candidate.engine == candidate.engine && one.candidate.tiling == candidate.tiling;
  });
  return found == timed.end() ? nullptr : &*found;
}

}  // namespace oocdnn
