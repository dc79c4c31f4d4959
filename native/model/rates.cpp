#include "model/rates.hpp"

#include "model/profile_rates.hpp"

namespace oocdnn {

Profile RatesOf(const Profile& profile, const PlanRequest& request) {
  const Problem& problem = request.problem;
  Profile rates;
  rates.shared_engines = profile.shared_engines;
  rates.wires = profile.wires;
  for (const PlainRate& plain : kPlainRates) rates.*plain.field = profile.*plain.field;
  for (const EngineInfo& engine : request.engines) {
    if (engine.name.empty()) continue;
    for (const Part& part : PartsOf(problem)) {
      const std::string key =
          Profile::FlopsKey(engine.name, problem.dtype, problem.math, part.direction);
      rates.flops[key] = profile.Flops(engine.name, problem.dtype, problem.math, part.direction);
      const auto tiles = profile.tiles.find(key);
      if (tiles != profile.tiles.end()) rates.tiles.insert(*tiles);
    }
  }
  return rates;
}

}  // namespace oocdnn
