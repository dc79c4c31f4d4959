// The plans of a context: made, kept, priced and prescribed, and the machine's profile, which they
// rest on.
#include <algorithm>
#include <mutex>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "library/plan_key.hpp"
#include "library/timed_plans.hpp"
#include "model/plan_text.hpp"
#include "model/refine.hpp"
#include "model/sample.hpp"

namespace oocdnn {
namespace {

// Of the plans of this context.
std::string KeyWithin(const Problem& problem, const Homes& home, const InPlace& in_place,
                      int64_t budget) {
  std::string key = KeyOf(problem, home, in_place);
  return key.append(reinterpret_cast<const char*>(&budget), sizeof budget);
}

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
  const Profile& rates = report->refined != nullptr ? *report->refined : profile;
  Result<PlanSearch> search = Search(WithoutBounce(report->request), rates);
  if (!search.ok()) return;
  report->ranked = std::move(search->ranked);
  report->refused = std::move(search->refused);
}

}  // namespace

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
    profile_ = std::make_unique<MachineProfile>(*stack_.base, options_.profile, budget_);
  }
  return *profile_;
}

// A device that tries engines out does so in memory of its own, and so are plans tried: they have
// the arena's meanwhile.
template <class Make>
auto Context::BesideArena(const Make& make) -> decltype(make()) {
  const bool tries =
      stack_.device->capabilities().tries_engines || options_.planning == Planning::kMeasure;
  const int64_t held = tries ? arena_->bytes() : 0;
  if (held == 0) return make();
  OOC_TRY(Settle());
  arena_->Release();
  auto made = make();
  static_cast<void>(arena_->Reserve(held));  // if that fails, the call that needs it says so
  return made;
}

// In place where that can be done; else in tiles, which the device then copies within its memory.
// Tiles are also faster than what an engine does in place without the workspace that it wants.
Result<PlanReport> Context::ChoosePlan(const PlanRequest& request, const InPlace& in_place) {
  const Profile& profile = ProfileFor(request.problem);
  if (in_place == InPlace{}) return PlanAndTime(*stack_.device, request, profile, &prepared_);
  PlanRequest picky = request;
  picky.first_choice = true;
  const auto short_of_memory = [](const Result<PlanReport>& made) {
    return made.status().code() == Code::kOutOfMemory;
  };
  Result<PlanReport> made = PlanInPlace(*stack_.device, picky, profile, in_place, &prepared_);
  if (made.status().code() != Code::kUnsupported && !short_of_memory(made)) return made;
  made = PlanAndTime(*stack_.device, request, profile, &prepared_);
  if (!short_of_memory(made)) return made;
  Result<PlanReport> rest = PlanInPlace(*stack_.device, request, profile, in_place, &prepared_);
  return rest.ok() ? std::move(rest) : std::move(made);
}

PlanRequest Context::RequestFor(const Problem& problem, const Homes& home, int64_t budget) const {
  PlanRequest request;
  request.problem = problem;
  request.home = home;
  request.budget = budget;
  // Only what crosses a wire bounces.
  request.bounce_bytes = OnDevice(problem, home)
                             ? 0
                             : BounceWithin(budget, stack_.device->capabilities().bounce_bytes);
  request.engines = EnginesFor(*stack_.device, options_.reproducible);
  request.reproducible = options_.reproducible;
  request.exhaustive = options_.planning == Planning::kExhaustive;
  request.measure = options_.planning == Planning::kMeasure;
  if (request.exhaustive || request.measure) {
    request.deadline = DeadlineIn(options_.planning_seconds);
  }
  return request;
}

Result<PlanPointer> Context::Lookup(const Problem& problem, const Homes& home,
                                    const InPlace& in_place, int64_t budget) {
  const std::string key = KeyWithin(problem, home, in_place, budget);
  if (const auto found = prescribed_.find(key); found != prescribed_.end()) return found->second;
  if (const PlanPointer* const kept = plans_.Find(key)) return *kept;
  OOC_ASSIGN(PlanReport report, MakePlan(RequestFor(problem, home, budget), in_place));
  if (Logs(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "plan %s", ToText(SummaryOf(report, ProfileFor(problem))).c_str());
  }
  if (plans_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return plans_.Put(key, std::make_shared<const PlanReport>(std::move(report)));
}

Result<PlanReport> Context::MakePlan(const PlanRequest& request, const InPlace& in_place) {
  if (!memory_->remembers()) return SearchPlan(request, in_place, 0);
  const uint64_t key = KeyOf(request, in_place, ProfileFor(request.problem));
  if (const auto kept = memory_->Find(key, request.budget)) {
    if (kept->plan.empty()) {
      return TooSmall(Error(Code::kOutOfMemory, "no plan fits, as an earlier search found"),
                      request.budget, kept->bytes);
    }
    Result<PlanReport> recalled = RecallPlan(request, *kept);
    if (recalled.ok()) return recalled;
    memory_->Refute(key, request.budget, recalled.status());
  }
  return SearchPlan(request, in_place, key);
}

// A plan in place is not remembered, because it is not searched for. That nothing fits is, where
// it is a matter of the budget and not of what the device has left.
Result<PlanReport> Context::SearchPlan(const PlanRequest& request, const InPlace& in_place,
                                       uint64_t key) {
  Result<PlanReport> made = BesideArena([&] { return ChoosePlan(request, in_place); });
  const std::string problem = ToString(request.problem);
  if (made.ok()) {
    const Booking& booking = made->booking;
    if (booking.in_place == InPlace{}) {
      memory_->Put(key, request.budget,
                   {problem, ToText(request, booking.candidate), booking.bytes, made->run_seconds});
    }
    return made;
  }
  if (made.status().code() != Code::kOutOfMemory) return made;
  const int64_t needed = made.status().detail();
  const int64_t works =
      WorkingBudget(*stack_.device, request, ProfileFor(request.problem), made.status());
  if (std::min(needed, works) > request.budget) {
    memory_->Put(key, request.budget, {problem, "", works, 0.0});
  }
  return TooSmall(std::move(made).status(), request.budget, works);
}

Result<PlanReport> Context::RecallPlan(const PlanRequest& request, const RememberedPlan& kept) {
  OOC_ASSIGN(const RankedCandidate priced,
             ParsePlan(request, ProfileFor(request.problem), kept.plan));
  OOC_ASSIGN(PlanReport report, BookPlan(request, priced, kept.run_seconds));
  report.remembered = true;
  return report;
}

Result<PlanSummary> Context::Plan(const Problem& problem) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  Result<PlanPointer> plan = Lookup(problem, {}, {}, budget_);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  PlanReport report = *plan.value();
  const Profile& profile = ProfileFor(problem);
  if (report.remembered) AddOthers(profile, &report);
  PlanSummary summary = SummaryOf(report, profile);
  if (!stack_.device->capabilities().reads_host) {
    summary.host_bytes =
        Staging::PageableBytes(problem, report.booking.candidate, options_.host_cap);
  }
  return summary;
}

Result<PlanSummary> Context::Price(const Problem& problem, const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  const PlanRequest request = RequestFor(problem, {}, budget_);
  const Profile& profile = ProfileFor(problem);
  const Result<RankedCandidate> priced = ParsePlan(request, profile, plan);
  if (!priced.ok()) return Status(priced.status()).With(ToString(problem));
  return Summarize(request, profile, priced.value(), {}, {});
}

Status Context::UsePlan(const Problem& problem, const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  Result<PlanPointer> booked = Prescribed(RequestFor(problem, {}, budget_), plan);
  if (!booked.ok()) return std::move(booked).status().With(ToString(problem));
  OOC_TRY(Settle());  // the plan that goes may still be run
  prescribed_[KeyWithin(problem, {}, {}, budget_)] = std::move(booked).value();
  return {};
}

Result<PlanPointer> Context::Prescribed(const PlanRequest& request, const std::string& plan) {
  OOC_ASSIGN(const RankedCandidate priced, ParsePlan(request, ProfileFor(request.problem), plan));
  const int64_t bytes = priced.cost.device_bytes + 2 * request.bounce_bytes;
  if (bytes > request.budget) {
    return Error(Code::kOutOfMemory,
                 "the plan takes %s of the device, the budget is %s: shorter tiles or fewer slots "
                 "take less",
                 BytesText(bytes).c_str(), BytesText(request.budget).c_str())
        .WithDetail(bytes);
  }
  OOC_ASSIGN(PlanReport report, BookPlan(request, priced, 0.0));
  return std::make_shared<const PlanReport>(std::move(report));
}

// A run that was timed says what the plan takes, as in PlanAndTime.
Result<PlanReport> Context::BookPlan(const PlanRequest& request, const RankedCandidate& priced,
                                     double run_seconds) {
  PlanReport report;
  report.request = request;
  report.cost = priced.cost;
  if (run_seconds > 0) {
    auto refined = std::make_shared<Profile>(ProfileFor(request.problem));
    report.cost = Learn(request, priced.candidate, run_seconds, refined.get());
    report.refined = std::move(refined);
    report.run_seconds = run_seconds;
  }
  OOC_ASSIGN(report.booking, BesideArena([&] {
               return Book(*stack_.device, request, priced.candidate, request.budget);
             }));
  ++prepared_;
  return report;
}

Result<std::vector<RunnerUp>> Context::Candidates(const Problem& problem, int best, int random,
                                                  uint64_t seed) {
  constexpr int kMost = 1000;
  OOC_TRY(CheckPlannable(problem));
  if (best < 0 || random < 0 || best > kMost || random > kMost) {
    return Error(Code::kInvalidProblem, "%d best and %d random plans: ask for 0 to %d of each",
                 best, random, kMost);
  }
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  PlanRequest request = WithoutBounce(RequestFor(problem, {}, budget_));
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

Result<int64_t> Context::PlanInCore(const Problem& problem, int64_t budget) {
  OOC_TRY(Validate(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  const int64_t alignment = stack_.device->capabilities().alignment;
  HostTensors tensors;
  for (int i = 0; i < kOperands; ++i) {
    tensors[i].tier = Tier::kDevice;
    tensors[i].view.data = reinterpret_cast<void*>(alignment * (i + 1));  // NOLINT: any address
  }
  const Homes home = HomesOf(problem, tensors);
  const InPlace in_place = InPlaceOf(problem, tensors, home);
  Result<PlanPointer> plan = Lookup(problem, home, in_place, budget > 0 ? budget : budget_);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  // Run looks for it by the scratch memory that it is given.
  const int64_t bytes = std::max<int64_t>(plan.value()->booking.bytes, 1);
  std::string key = KeyWithin(problem, home, in_place, bytes);
  if (plans_.Find(key) == nullptr) {
    if (plans_.full()) OOC_TRY(Settle());
    plans_.Put(std::move(key), plan.value());
  }
  return bytes + alignment;
}

Result<std::string> Context::Calibrate(const Progress& progress) {
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  OOC_TRY(Settle());
  arena_->Release();
  plans_.Clear();  // which rest on what was known
  MachineProfile& profile = Machine();
  OOC_TRY(profile.Complete(progress).With("measuring this machine"));
  return profile.file();
}

Result<Refinement> Context::Refine(const Problem& problem,
                                   const std::vector<double>& busy_seconds) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  OOC_ASSIGN(const PlanPointer plan, Lookup(problem, {}, {}, budget_));
  OOC_TRY(Settle());
  Result<Refinement> made = Machine().Refine(plan->request, plan->booking.candidate, busy_seconds);
  if (!made.ok()) return std::move(made).status().With(ToString(problem));
  plans_.Clear();  // which rest on what was known
  return made;
}

}  // namespace oocdnn
