// Lessons: what a profile has learnt from runs that were timed, without the profile. A plan keeps
// its own, and contexts keep hundreds of plans.
#pragma once

#include <map>
#include <string>

#include "model/profile/profile.hpp"

namespace oocdnn {

class Lessons {
 public:
  Lessons() = default;
  // `after` is `before` with what Refine has changed: rates of tiles, and what is known of them.
  Lessons(const Profile& before, const Profile& after);

  // The same of a profile that may have come to know more of other tiles since.
  [[nodiscard]] Profile AddedTo(Profile profile) const;
  [[nodiscard]] int64_t count() const;  // rates

 private:
  std::map<std::string, TileRates> tiles_;
  std::map<std::string, Evidence> evidence_;
};

}  // namespace oocdnn
