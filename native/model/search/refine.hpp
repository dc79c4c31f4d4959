// Refine: has a profile agree with runs that were timed.
#pragma once

#include <string>

#include "model/plan.hpp"

namespace oocdnn {

// What a profile has of the candidate's tile, in operations per second.
struct TileRate {
  std::string key;  // see Profile::TilesKey
  TileSize size{};
  double rate = 0.0;
};
TileRate RateOfTile(const PlanRequest& request, const Candidate& candidate, const Profile& profile);

// With a run of the candidate's tile alone; of others on its engine the profile thinks as before.
// Of gradients together, those that came along with dx are taken to be as the profile has them.
// Gives the name of the tile's rate (model/profile/profile_rates.hpp), which is one that a profile
// may hold however odd the time (PossibleRate).
std::string Refine(const PlanRequest& request, const Candidate& candidate, double run_seconds,
                   const Evidence& known, Profile* profile);

// The price of the candidate with a run that was timed, which the profile agrees with afterwards.
Cost Learn(const PlanRequest& request, const Candidate& candidate, double run_seconds,
           Profile* profile);

// Seconds of one run of the candidate's tile alone, of a whole call in which what computes was busy
// for so many.
double RunSecondsOf(const PlanRequest& request, const Candidate& candidate, const Profile& profile,
                    double busy_seconds);

}  // namespace oocdnn
