#include "model/profile/rate_updates.hpp"

namespace oocdnn {
namespace {

template <class Value>
std::map<std::string, Value> Changed(const std::map<std::string, Value>& before,
                                     const std::map<std::string, Value>& after) {
  std::map<std::string, Value> changed;
  for (const auto& [key, value] : after) {
    const auto known = before.find(key);
    if (known == before.end() || known->second != value) changed.emplace(key, value);
  }
  return changed;
}

}  // namespace

RateUpdates::RateUpdates(const Profile& before, const Profile& after)
    : tiles_(Changed(before.tiles, after.tiles)),
      evidence_(Changed(before.evidence, after.evidence)) {}

Profile RateUpdates::AddedTo(Profile profile) const {
  for (const auto& [key, rates] : tiles_) profile.tiles[key] = rates;
  for (const auto& [name, known] : evidence_) profile.evidence[name] = known;
  return profile;
}

int64_t RateUpdates::count() const {
  int64_t rates = 0;
  for (const auto& [_, tiles] : tiles_) rates += static_cast<int64_t>(tiles.size());
  return rates;
}

}  // namespace oocdnn
