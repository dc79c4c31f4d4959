// The plans of a context: made, kept, priced and prescribed, and the machine's profile, which they
// rest on.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "model/search/refine.hpp"
#include "model/search/sample.hpp"
#include "model/text/plan_text.hpp"
#include "planner/in_place.hpp"
#include "planner/timed_plans.hpp"
#include "store/plan_key.hpp"

namespace oocdnn {
namespace {

Status TooSmall(Status why, int64_t budget, int64_t works) {
  return std::move(why)
      .With(Format("a budget of %s is too small, %lld bytes work", BytesText(budget).c_str(),
                   static_cast<long long>(works)))
      .WithDetail(works);
}

// Two invariant engines may still round differently, so reproducible results come from one engine
// whatever the budget: the first that is invariant. Names of the others are left empty.
std::vector<EngineInfo> EnginesFor(const Device& device, bool reproducible) {
  std::vector<EngineInfo> engines = device.engines();
  if (!reproducible) return engines;
  bool found = false;
  for (EngineInfo& engine : engines) {
    if (found || !engine.properties.invariant) engine.name.clear();
    found = found || engine.properties.invariant;
  }
  return engines;
}

// What a remembered plan would have been chosen from, for who asks.
void AddOthers(const Profile& profile, PlanReport* report) {
  Result<PlanSearch> search =
      Search(WithoutBounce(report->request), report->rate_updates.AddedTo(profile));
  if (!search.ok()) return;
  report->ranked = std::move(search->ranked);
  report->refused = std::move(search->refused);
}

}  // namespace

std::string Context::KeyOf(const Problem& problem, const Terms& terms) {
  std::string key = oocdnn::KeyOf(problem, terms.home, terms.in_place, terms.workspace);
  key.append(reinterpret_cast<const char*>(&terms.budget), sizeof terms.budget);
  return key;
}

// Whether it is pinned or staged, or in a file, a prescribed plan is for all that crosses the wire.
std::string Context::PrescriptionOf(const Problem& problem, Terms terms) {
  for (Home& home : terms.home) home = CrossesWire(home) ? Home::kHost : home;
  return KeyOf(problem, terms);
}

// Measuring takes device memory, so that of the arena goes first.
const Profile& Context::ProfileFor(const Problem& problem) {
  if (profile_ == nullptr || profile_->Lacks(problem)) {
    static_cast<void>(Settle());
    arena_->Release();
  }
  return Machine().For(problem);
}

MachineProfile& Context::Machine() {
  if (profile_ == nullptr) {
    const bool wired = !stack_.base->capabilities().shares_host_memory;
    profile_ = std::make_unique<MachineProfile>(*stack_.base, options_.profile, budget_,
                                                wired ? options_.busy_gpus : 0);
  }
  return *profile_;
}

Result<PlanReport> Context::ChoosePlan(const PlanRequest& request) {
  const Profile& profile = ProfileFor(request.problem);
  if (request.in_place != InPlace{}) return ChooseInCore(request, profile);
  return PlanAndTime(*stack_.device, request, profile, &TimedOf(request), &prepared_);
}

// As a whole where an engine has the workspace that it wants. Else the batch is divided, or the
// problem is in tiles, which the device then copies within its memory: either may be faster than
// what an engine does without that workspace. Who limits workspaces is told what is the fastest.
Result<PlanReport> Context::ChooseInCore(const PlanRequest& request, const Profile& profile) {
  Device& device = *stack_.device;
  PlanRequest picky = request;
  picky.first_choice = true;
  const auto refused = [](const Result<PlanReport>& made) {
    const Code code = made.status().code();
    return code == Code::kOutOfMemory || code == Code::kUnsupported;
  };
  const bool timed = device.capabilities().tries_engines || request.measure;
  if (request.workspace == kNoLimit) {
    Result<PlanReport> whole =
        PlanInPlace(device, picky, profile, {.divided = false, .timed = timed}, &prepared_);
    if (!refused(whole)) return whole;
  }
  Result<PlanReport> parts = PlanInPlace(device, timed ? request : picky, profile,
                                         {.divided = true, .timed = timed}, &prepared_);
  if (parts.ok() ? parts->CopiesNoSamples() : !refused(parts)) return parts;
  Result<PlanReport> tiles = PlanAndTime(device, request, profile, &TimedOf(request), &prepared_);
  if (parts.ok()) {
    return tiles.ok() && tiles->Beats(parts.value()) ? std::move(tiles) : std::move(parts);
  }
  if (tiles.ok() || tiles.status().code() != Code::kOutOfMemory) return tiles;
  Result<PlanReport> rest = PlanInPlace(device, request, profile, {.divided = true}, &prepared_);
  return rest.ok() ? std::move(rest) : std::move(tiles);
}

PlanRequest Context::RequestFor(const Problem& problem, const Terms& terms) const {
  PlanRequest request;
  request.problem = problem;
  request.home = terms.home;
  request.in_place = terms.in_place;
  request.budget = terms.budget;
  request.workspace = terms.workspace;
  // Only what crosses a wire bounces.
  if (!OnDevice(problem, terms.home)) {
    request.bounce_bytes = BounceWithin(terms.budget, stack_.device->capabilities().bounce_bytes);
  }
  request.engines = EnginesFor(*stack_.device, options_.reproducible);
  request.reproducible = options_.reproducible;
  request.exhaustive = options_.planning == Planning::kExhaustive;
  request.measure = options_.planning == Planning::kMeasure;
  // Calls in core may be captured later, when nothing can be timed.
  request.gradual = options_.planning == Planning::kGradual && !OnDevice(problem, terms.home);
  if (request.exhaustive || request.measure) {
    request.deadline = DeadlineIn(options_.planning_seconds);
  }
  return request;
}

PlanRequest Context::CallRequestFor(const Problem& problem, const Terms& terms) const {
  PlanRequest request = RequestFor(problem, terms);
  if (pins_) request.pin_bytes = AutoPinBytes();
  return request;
}

Result<PlanReport> Context::MakePlan(const PlanRequest& request) {
  if (!memory_->remembers()) return SearchPlan(request, std::nullopt);
  const uint64_t key = oocdnn::KeyOf(request, ProfileFor(request.problem));
  if (const auto kept = memory_->Find(key, request.budget)) {
    if (kept->plan.empty()) {
      return TooSmall(Error(Code::kOutOfMemory, "no plan fits, as an earlier search found"),
                      request.budget, kept->bytes);
    }
    Result<PlanReport> recalled = RecallPlan(request, *kept);
    if (recalled.ok()) return recalled;
    if (IsTransient(recalled.status())) return SearchPlan(request, std::nullopt);
    memory_->Refute(key, request.budget, recalled.status());
  }
  return SearchPlan(request, key);
}

// A plan in place is not remembered, because it is not searched for, but where runs were timed; nor
// is one that a moment's lack of memory has led to.
void Context::Remember(uint64_t key, const PlanRequest& request, const PlanReport& report) {
  const Booking& booking = report.booking;
  if (booking.in_place != InPlace{} && report.run_seconds == 0.0) return;
  if (report.transient) return;
  memory_->Put(key, request.budget,
               {ToString(request.problem), ToText(request, booking.candidate), booking.bytes,
                report.run_seconds});
}

// That nothing fits is remembered where it is a matter of the budget and not of what the device has
// left.
Result<PlanReport> Context::SearchPlan(const PlanRequest& request, std::optional<uint64_t> key) {
  Result<PlanReport> made = BesideArena([&] { return ChoosePlan(request); });
  if (made.ok() && key) Remember(*key, request, made.value());
  if (made.ok() || made.status().code() != Code::kOutOfMemory) return made;
  const int64_t needed = made.status().detail();
  OOC_ASSIGN(const int64_t works,
             LeastBudget(*stack_.device, request, ProfileFor(request.problem), made.status()));
  if (key && std::min(needed, works) > request.budget) {
    memory_->Put(*key, request.budget, {ToString(request.problem), "", works, 0.0});
  }
  return TooSmall(std::move(made).status(), request.budget, works);
}

Result<PlanReport> Context::RecallPlan(const PlanRequest& request, const RememberedPlan& kept) {
  OOC_ASSIGN(const RankedCandidate priced,
             ParsePlan(request, ProfileFor(request.problem), kept.plan));
  OOC_ASSIGN(PlanReport report, BookPlan(request, priced.candidate, kept.run_seconds));
  report.remembered = true;
  if (request.gradual && kept.run_seconds > 0.0) {
    TimedTiles& timed = TimedOf(request);
    if (Find(timed, priced.candidate) == nullptr) {
      timed.tiles.push_back({priced.candidate, kept.run_seconds});
    }
    report.settled = false;
  }
  return report;
}

Result<PlanSummary> Context::Plan(const Problem& problem, const Placement& placement) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_plan"));
  const Terms terms = TermsOf(problem, placement);
  Result<PlanPointer> plan = Lookup(problem, terms);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  PlanReport report = *plan.value();
  const Profile& profile = ProfileFor(problem);
  if (report.remembered) AddOthers(profile, &report);
  PlanSummary summary = SummaryOf(report, profile);
  if (!stack_.device->capabilities().reads_host && !OnDevice(problem, terms.home)) {
    summary.host_bytes =
        Staging::PageableBytes(problem, report.booking.candidate, options_.host_cap);
  }
  return summary;
}

Result<PlanSummary> Context::Price(const Problem& problem, const Placement& placement,
                                   const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_price"));
  const PlanRequest request = CallRequestFor(problem, TermsOf(problem, placement));
  const Profile& profile = ProfileFor(problem);
  const Result<RankedCandidate> priced = ParsePlan(request, profile, plan);
  if (!priced.ok()) return Status(priced.status()).With(ToString(problem));
  return Summarize(request, profile, priced.value(), {}, {});
}

Status Context::UsePlan(const Problem& problem, const Placement& placement,
                        const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_use_plan"));
  const Terms terms = TermsOf(problem, placement);
  Result<PlanPointer> booked = Prescribed(CallRequestFor(problem, terms), plan);
  if (!booked.ok()) return std::move(booked).status().With(ToString(problem));
  OOC_TRY(Settle());  // the plan that goes may still be run
  prescribed_[PrescriptionOf(problem, terms)] = std::move(booked).value();
  return {};
}

Result<PlanPointer> Context::Prescribed(const PlanRequest& request, const std::string& plan) {
  OOC_ASSIGN(const RankedCandidate parsed, ParsePlan(request, ProfileFor(request.problem), plan));
  const PlanRequest hoped = PricedFor(request, parsed.candidate);
  const int64_t bytes = EstimateBytes(hoped, parsed.candidate) + 2 * request.bounce_bytes;
  if (bytes > request.budget) {
    return Error(Code::kOutOfMemory,
                 "the plan takes %s of the device, the budget is %s: shorter tiles or fewer slots "
                 "take less",
                 BytesText(bytes).c_str(), BytesText(request.budget).c_str())
        .WithDetail(bytes);
  }
  OOC_ASSIGN(PlanReport report, BookPlan(request, parsed.candidate, 0.0));
  return std::make_shared<const PlanReport>(std::move(report));
}

// A run that was timed says what the plan takes, as in PlanAndTime.
Result<PlanReport> Context::BookPlan(const PlanRequest& request, const Candidate& candidate,
                                     double run_seconds) {
  PlanReport report;
  OOC_ASSIGN(report.booking, BesideArena([&] {
               return Book(*stack_.device, PricedFor(request, candidate), candidate,
                           request.budget);
             }));
  ++prepared_;
  report.request = PricedInPlace(request, report.booking.in_place);
  const Profile& profile = ProfileFor(request.problem);
  if (run_seconds > 0) {
    Profile learnt = profile;
    report.cost = Learn(report.request, candidate, run_seconds, &learnt);
    report.rate_updates = RateUpdates(profile, learnt);
    report.run_seconds = run_seconds;
  } else {
    report.cost = PriceOf(report.request, candidate, profile);
  }
  return report;
}

Result<std::vector<RunnerUp>> Context::Candidates(const Problem& problem,
                                                  const Placement& placement, int best, int random,
                                                  uint64_t seed) {
  constexpr int kMost = 1000;
  OOC_TRY(CheckPlannable(problem));
  if (best < 0 || random < 0 || best > kMost || random > kMost) {
    return Error(Code::kInvalidProblem, "%d best and %d random plans: ask for 0 to %d of each",
                 best, random, kMost);
  }
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_candidates"));
  PlanRequest request = WithoutBounce(CallRequestFor(problem, TermsOf(problem, placement)));
  request.best = std::max(best, 1);
  const Profile& profile = ProfileFor(problem);
  Result<PlanSearch> search = Search(request, profile);
  if (!search.ok()) return std::move(search).status().With(ToString(problem));
  std::vector<RankedCandidate>& found = search->ranked;
  found.resize(std::min(found.size(), static_cast<size_t>(best)));
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
  const std::vector<RankedCandidate> others = Sample(request, profile, random, seed);
  found.insert(found.end(), others.begin(), others.end());
  std::vector<RunnerUp> all(found.size());
  std::transform(found.begin(), found.end(), all.begin(),
                 [&](const RankedCandidate& ranked) { return RunnerUpOf(request, ranked); });
  return all;
}

Result<int64_t> Context::PlanInCore(const Problem& problem, int64_t budget, int64_t workspace) {
  OOC_TRY(Validate(problem));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_plan_in_core"));
  if (problem.shape.n == 0) return 0;  // there are no tiles
  Terms terms = TermsInCore(problem);
  if (budget > 0) terms.budget = budget;
  if (workspace != kLimitOfContext) terms.workspace = workspace;
  Result<PlanPointer> plan = Lookup(problem, terms);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  // Run looks for it by the scratch memory that it is given.
  terms.budget = std::max<int64_t>(plan.value()->booking.bytes, 1);
  std::string key = KeyOf(problem, terms);
  if (plans_.Find(key) == nullptr) {
    if (plans_.full()) OOC_TRY(Settle());
    plans_.Put(std::move(key), plan.value());
  }
  return terms.budget + stack_.device->capabilities().alignment;
}

Result<std::vector<MicroBatch>> Context::MeasureParts(const Problem& problem, BatchPolicy policy) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_measure_parts"));
  const PlanRequest request = RequestFor(problem, TermsInCore(problem));
  const Profile& profile = ProfileFor(problem);
  OOC_TRY(Settle());
  arena_->Release();  // what is timed has its memory
  Result<std::vector<MicroBatch>> parts =
      oocdnn::MeasureParts(*stack_.device, request, profile, policy, &prepared_);
  if (!parts.ok()) return std::move(parts).status().With(ToString(problem));
  return parts;
}

Result<std::string> Context::Calibrate(const Progress& progress) {
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_calibrate"));
  OOC_TRY(Settle());
  arena_->Release();
  ForgetPlans();
  MachineProfile& profile = Machine();
  OOC_TRY(profile.Complete(options_.device, progress).With("measuring this machine"));
  return profile.file();
}

Result<Refinement> Context::Refine(const Problem& problem,
                                   const std::vector<double>& busy_seconds) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_refine"));
  OOC_ASSIGN(const PlanPointer plan, Lookup(problem, TermsOf(problem, Placement{})));
  OOC_TRY(Settle());
  Result<Refinement> made = Machine().Refine(plan->request, plan->booking.candidate, busy_seconds);
  if (!made.ok()) return std::move(made).status().With(ToString(problem));
  ForgetPlans();
  return made;
}

}  // namespace oocdnn
