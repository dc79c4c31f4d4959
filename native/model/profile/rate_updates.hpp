// RateUpdates: the changes that timed runs made to a profile, without the profile itself. Each plan
// keeps its own, and a context keeps hundreds of plans.
#pragma once

#include <map>
#include <string>

#include "model/profile/profile.hpp"

namespace oocdnn {

class RateUpdates {
 public:
  RateUpdates() = default;
  // `after` is `before` with the changes made by Refine: rates of tiles, and their evidence.
  RateUpdates(const Profile& before, const Profile& after);

  // Applies the changes to a profile that may have rates of further tiles by now.
  [[nodiscard]] Profile AddedTo(Profile profile) const;
  [[nodiscard]] int64_t count() const;  // changed rates

 private:
  std::map<std::string, TileRates> tiles_;
  std::map<std::string, Evidence> evidence_;
};

}  // namespace oocdnn
