// Asks the price itself what it leans on, so that nothing here has to know how prices are made.
#include "model/text/assumptions.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/profile/profile_rates.hpp"

namespace oocdnn {
namespace {

// Whether a rate of that name may have to do with the engine, whose arithmetic has these keys.
bool Concerns(const std::string& name, const std::string& engine,
              const std::vector<std::string>& keys) {
  const bool plain = name.find(' ') == std::string::npos;
  const auto its = [&](const std::string& key) { return name.ends_with(" " + key); };
  return plain || std::any_of(keys.begin(), keys.end(), its) ||
         name == OnceName(Profile::PinKey()) || name.starts_with(kWireWord + engine + "/") ||
         name.starts_with(std::string(kWireWord) + kBeside + "/") ||
         name.starts_with(std::string(kWireWord) + kPagePlace + "/") ||
         name.starts_with(std::string(kWireWord) + kFilePlace + "/");
}

// With what those of passes fall back to.
void AddPasses(const std::string& engine, Profile* profile) {
  for (const bool channels_last : {false, true}) {
    const WireRates wire = profile->Wire(engine, channels_last);
    const std::pair<const char*, double> passes[] = {{"finish", wire.finish},
                                                     {"pool", wire.pool},
                                                     {"restore", wire.restore},
                                                     {"normalize", wire.normalize}};
    for (const auto& [name, rate] : passes) {
      profile->wires.emplace(Profile::WireKey(engine, channels_last, name), rate);
    }
  }
}

// Staging that is not known keeps up with the wire.
void AddStaging(const std::string& engine, Profile* profile) {
  const WireRates first = profile->Wire(engine, false), last = profile->Wire(engine, true);
  for (const char* place : {kPagePlace, kFilePlace}) {
    const auto add = [&](const char* name, double rate) {
      profile->wires.emplace(Profile::StagingKey(place, name), rate);
    };
    add("fetch", std::max(first.fetch, last.fetch));
    add("drain", std::max(first.drain, last.drain));
    add("both", std::max(first.both, last.both));
  }
}

// Beside more GPUs than were measured it is as beside fewer, or alone.
void AddBeside(Profile* profile) {
  if (profile->busy_gpus == 0) return;
  for (const char* rate : kBesideRates) {
    const double assumed = profile->Alone(rate) * profile->ShareBeside(rate);
    profile->wires.emplace(Profile::BesideKey(profile->busy_gpus, rate), assumed);
  }
}

bool Differ(const Cost& one, const Cost& other) {
  constexpr double kRounding = 1e-9;
  for (const auto seconds :
       {&Cost::seconds, &Cost::fetch_seconds, &Cost::compute_seconds, &Cost::drain_seconds}) {
    if (std::abs(one.*seconds - other.*seconds) > kRounding * one.*seconds) return true;
  }
  return false;
}

// Whether the price, which is `cost`, changes with the rate.
bool Matters(const PlanRequest& request, const Candidate& candidate, const Profile& profile,
             const Cost& cost, double* rate) {
  const double before = *rate;
  const auto differs = [&](double value) {
    *rate = value;
    const Cost other = PriceOf(request, candidate, profile);
    *rate = before;
    return Differ(cost, other);
  };
  return before == 0.0 ? differs(1.0) : differs(before / 2) || differs(before * 2);
}

}  // namespace

std::vector<std::string> Assumptions(const PlanRequest& request, const Candidate& candidate,
                                     const Profile& profile) {
  const Problem& problem = request.problem;
  const std::string& engine = request.engines[static_cast<size_t>(candidate.engine)].name;
  std::vector<std::string> keys;
  Profile tried = profile;
  for (const Part& part : PartsOf(problem)) {
    for (const bool sums : {false, true}) {
      keys.push_back(profile.TilesKey(engine, problem, part.direction, sums));
      if (tried.tiles.contains(keys.back())) continue;
      const std::string key =
          Profile::FlopsKey(engine, problem.dtype, problem.math, part.direction, sums);
      keys.push_back(key);
      tried.flops.emplace(key,
                          profile.Flops(engine, problem.dtype, problem.math, part.direction, sums));
    }
  }
  AddBeside(&tried);
  AddPasses(engine, &tried);
  AddStaging(engine, &tried);
  const Cost cost = PriceOf(request, candidate, tried);
  std::vector<std::string> names;
  VisitRates(tried, [&](const std::string& name, double& rate) {
    if (tried.evidence.contains(name) || !Concerns(name, engine, keys)) return;
    if (Matters(request, candidate, tried, cost, &rate)) names.push_back(name);
  });
  return names;
}

}  // namespace oocdnn
