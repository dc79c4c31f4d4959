// Opinion: what is thought of a problem's tiles on a device while runs of some are timed.
//
// A profile knows tiles of square images. Those of a problem may be slower or faster, all of one
// number of channels alike or some lengths only: cuDNN's rates go up and down with the length, as
// its blocks fill the device or leave parts of it idle. So there are two opinions, one of what is
// likely and one of what may be hoped for; a plan is worth timing while either promises something.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "model/plan.hpp"
#include "model/search/refine.hpp"

namespace oocdnn {

class Opinion {
 public:
  // By how much a plan has to promise to be faster: what is likely, and what is only hoped for.
  static constexpr double kFaster = 1.01, kHopedFaster = 1.03;

  // Both outlive this.
  Opinion(const PlanRequest& request, const Profile& profile);

  // The profile, which has learnt from the runs.
  [[nodiscard]] const Profile& likely() const { return likely_; }

  // The price of a plan whose run took so long. That its tile is faster or slower than was thought
  // may lie with its size alone or with the problem. Of other tiles with its number of channels
  // half of it is thought likely, and the best of all that were timed may be hoped for.
  Cost Learn(const Candidate& candidate, double run_seconds);
  // The same of a plan that is not this request's, whose tile alone it has in common.
  void Recall(const Candidate& candidate, double run_seconds);

  // Plans of which the first may be faster than one of so many seconds, and by what; none where
  // nothing says so.
  struct Promise {
    const Profile& profile;
    PlanSearch search;
  };
  [[nodiscard]] std::optional<Promise> Promising(double seconds) const;

 private:
  // Only of this size is less hoped for: the next may fill the device better.
  void Disappoint(const Candidate& candidate, double run_seconds);
  // Those with as many channels that were not timed.
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
