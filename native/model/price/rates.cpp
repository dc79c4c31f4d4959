#include "model/price/rates.hpp"

#include "model/profile/profile_rates.hpp"

namespace oocdnn {
namespace {

// All but what is beside other numbers of GPUs.
std::map<std::string, double> WiresOf(const Profile& profile) {
  std::map<std::string, double> wires = profile.wires;
  std::erase_if(
      wires, [](const auto& wire) { return wire.first.starts_with(std::string(kBeside) + "/"); });
  for (int others = 1; others <= profile.busy_gpus; ++others) {
    for (const char* rate : kBesideRates) {
      const auto found = profile.wires.find(Profile::BesideKey(others, rate));
      if (found != profile.wires.end()) wires.insert(*found);
    }
  }
  return wires;
}

}  // namespace

Profile RatesOf(const Profile& profile, const PlanRequest& request) {
  const Problem& problem = request.problem;
  Profile rates;
  rates.shared_engines = profile.shared_engines;
  rates.busy_gpus = profile.busy_gpus;
  rates.wires = WiresOf(profile);
  for (const PlainRate& plain : kPlainRates) rates.*plain.field = profile.*plain.field;
  const auto pin = profile.once.find(Profile::PinKey());
  if (request.pin_bytes > 0 && pin != profile.once.end()) rates.once.insert(*pin);
  for (const EngineInfo& engine : request.engines) {
    if (engine.name.empty()) continue;
    for (const Part& part : PartsOf(problem)) {
      const auto key_of = [&](bool sums) {
        return Profile::FlopsKey(engine.name, problem.dtype, problem.math, part.direction, sums);
      };
      rates.flops[key_of(false)] =
          profile.Flops(engine.name, problem.dtype, problem.math, part.direction);
      for (const bool sums : {false, true}) {
        const auto tiles =
            profile.tiles.find(profile.TilesKey(engine.name, problem, part.direction, sums));
        if (tiles != profile.tiles.end()) rates.tiles.insert(*tiles);
        const auto flops = profile.flops.find(key_of(sums));
        if (flops != profile.flops.end()) rates.flops.insert(*flops);
      }
    }
  }
  return rates;
}

}  // namespace oocdnn
