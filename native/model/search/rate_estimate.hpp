// RateEstimate: rates of a problem's tiles on a device, updated by timed runs.
//
// A profile has rates of tiles of square images. A problem's tiles may be slower or faster, either
// all that have the same number of channels or some lengths only: cuDNN's rates vary with the
// length, because its thread blocks fill the device to different degrees. The class therefore holds
// two profiles: the likely rates, and optimistic ones. A plan is worth timing while either of them
// predicts an improvement.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "model/plan.hpp"
#include "model/search/refine.hpp"

namespace oocdnn {

class RateEstimate {
 public:
  // The least predicted speedup of a plan that is timed: by the likely and by the optimistic rates.
  static constexpr double kFaster = 1.01, kHopedFaster = 1.03;

  // Both outlive this.
  RateEstimate(const PlanRequest& request, const Profile& profile);

  // The profile, updated by the timed runs.
  [[nodiscard]] const Profile& likely() const { return likely_; }

  // Returns the cost of a plan whose run took `run_seconds`, and updates the rates. The difference
  // from the predicted rate may be due to the tile's size alone, or to the problem. Other tiles
  // with the same number of channels get half of it in the likely profile; in the optimistic one
  // they get the best difference of all timed tiles.
  Cost Learn(const Candidate& candidate, double run_seconds);
  // Updates the rates by a timed plan of another request that has the same tile.
  void Recall(const Candidate& candidate, double run_seconds);

  // Plans of which the first is predicted to take less than `seconds`, with the profile that
  // predicts it; none where neither profile does.
  struct Promise {
    const Profile& profile;
    PlanSearch search;
  };
  [[nodiscard]] std::optional<Promise> Promising(double seconds) const;

 private:
  // Lowers the optimistic rate of this tile size only: the next size may fill the device better.
  void Disappoint(const Candidate& candidate, double run_seconds);
  // Scales the rates of the tiles with the same number of channels that were not timed.
  void ScaleOthers(const TileRate& timed, double factor, Profile* profile) const;
  [[nodiscard]] std::optional<Promise> Promised(const Profile& profile, double seconds) const;

  const PlanRequest& request_;
  const Profile& profile_;
  Profile likely_, hoped_;
  std::set<std::pair<std::string, TileSize>> timed_;  // tiles, by the profile's key
  // By key and number of channels, the most that a tile was faster than the profile says.
  std::map<std::pair<std::string, int64_t>, double> best_;
};

}  // namespace oocdnn
