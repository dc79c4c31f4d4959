#include "library/plan_for_profile.hpp"

#include <algorithm>

#include "backends/backends.hpp"
#include "base/cache.hpp"
#include "exec/staging.hpp"
#include "geom/engines.hpp"
#include "geom/skipped_rows.hpp"
#include "planner/plan_report.hpp"

namespace oocdnn {
namespace {

Result<Profile> ReadProfile(const std::string& file) {
  const Result<std::string> text = ReadKept(file);
  if (!text.ok()) return Status(text.status()).With("the profile " + file);
  if (text.value().empty()) {
    return Error(Code::kFileError, "the profile %s is missing or empty", file.c_str());
  }
  Result<Profile> profile = ParseProfile(text.value());
  if (!profile.ok()) return std::move(profile).status().With(file);
  return profile;
}

// Those with a rate in the profile that serve the problem, in order of preference.
std::vector<EngineInfo> EnginesOf(const Profile& profile, const Problem& problem) {
  std::vector<EngineInfo> engines;
  for (const EngineInfo& engine : KnownEngines()) {
    const std::string prefix = engine.name + "/";
    const auto found = profile.flops.lower_bound(prefix);
    const bool rated = found != profile.flops.end() && found->first.starts_with(prefix);
    if (rated && Serves(engine, problem)) engines.push_back(engine);
  }
  return engines;
}

// What nothing is said of lies in pageable memory, which a device that is the host reaches.
Tier TierOf(Tier said, bool host_device) {
  switch (said) {
    case Tier::kDevice:
    case Tier::kFile:
    case Tier::kPinned: return said;
    default: break;
  }
  return host_device ? Tier::kPinned : Tier::kPageable;
}

// What the output held before lies where the output does.
Tiers TiersOf(const Problem& problem, const Placement& placement, bool host_device) {
  Tiers tiers = AllOf(Tier::kPinned);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const Operand said = operand == Operand::kOld ? problem.output() : operand;
    if (!problem.Has(operand)) continue;
    tiers[i] = TierOf(placement.tiers[static_cast<size_t>(Index(said))], host_device);
  }
  return tiers;
}

PlanRequest RequestOf(const Problem& problem, const Placement& placement, const Profile& profile,
                      int64_t budget) {
  PlanRequest request;
  request.tiers = TiersOf(problem, placement, profile.shared_engines);
  request.problem = WithoutSkippedRows(problem, request.tiers);
  request.budget = budget;
  if (!profile.shared_engines) request.pin_bytes = kLeastStaging;
  request.engines = EnginesOf(profile, problem);
  int64_t bounce = 0;
  for (const EngineInfo& engine : request.engines) bounce = std::max(bounce, BounceBytes(engine));
  request.bounce_bytes = BounceWithin(budget, bounce);
  return request;
}

}  // namespace

Result<PlanSummary> PlanForProfile(const Problem& problem, const Placement& placement,
                                   const std::string& file, int64_t budget, int busy_gpus) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(Profile profile, ReadProfile(file));
  profile.busy_gpus = busy_gpus;
  PlanRequest request = RequestOf(problem, placement, profile, budget);
  if (request.engines.empty()) {
    return Error(Code::kUnsupported,
                 "the profile %s has a rate of no known engine that serves the problem",
                 file.c_str());
  }
  Result<PlanSearch> search = Search(WithoutBounce(request), profile);
  if (!search.ok()) return std::move(search).status().With(ToString(problem));
  const RankedCandidate& chosen = search->ranked.front();
  PlanSummary summary = Summarize(request, profile, chosen, search->ranked, search->refused);
  summary.search_seconds = search->seconds;
  if (!profile.shared_engines && !OnDevice(problem, request.tiers)) {
    summary.host_bytes = Staging::PageableBytes(request.problem, chosen.candidate, kLeastStaging);
  }
  return summary;
}

}  // namespace oocdnn
