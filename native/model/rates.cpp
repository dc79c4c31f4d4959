#include "model/rates.hpp"

namespace oocdnn {

Profile RatesOf(const Profile& profile, const PlanRequest& request) {
  const Problem& problem = request.problem;
  Profile rates = profile;
  rates.of = {};
  rates.evidence.clear();
  rates.date.clear();
  rates.flops.clear();
  rates.tiles.clear();
  for (const EngineInfo& engine : request.engines) {
    if (engine.name.empty()) continue;
    const std::string key =
        Profile::FlopsKey(engine.name, problem.dtype, problem.math, problem.direction);
    rates.flops[key] = profile.Flops(engine.name, problem.dtype, problem.math, problem.direction);
    if (const auto tiles = profile.tiles.find(key); tiles != profile.tiles.end()) {
      rates.tiles.insert(*tiles);
    }
  }
  return rates;
}

}  // namespace oocdnn
