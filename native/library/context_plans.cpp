// The plans of a context: made, kept, priced and prescribed, and the machine's profile, which they
// rest on.
#include <algorithm>
#include <mutex>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "library/timed_plans.hpp"
#include "model/plan_text.hpp"
#include "model/sample.hpp"

namespace oocdnn {
namespace {

void Append(std::string* key, const void* data, size_t bytes) {
  key->append(static_cast<const char*>(data), bytes);
}

// Equal keys mean equal plans: every number that the planner and the engines look at.
// What two problems differ in that is of no consequence is left out: the strides of operands that
// are not used, and along dimensions of one element.
std::string KeyOf(const Problem& problem, const Homes& home, const InPlace& in_place,
                  int64_t budget) {
  std::string key;
  const int32_t small[] = {static_cast<int32_t>(problem.direction),
                           problem.rank,
                           static_cast<int32_t>(problem.dtype),
                           static_cast<int32_t>(problem.math),
                           static_cast<int32_t>(problem.epilogue.scale),
                           static_cast<int32_t>(problem.epilogue.bias),
                           static_cast<int32_t>(problem.epilogue.residual),
                           static_cast<int32_t>(problem.epilogue.activation)};
  const double scalars[] = {problem.alpha, problem.beta, problem.epilogue.residual_alpha,
                            problem.epilogue.parameter};
  Append(&key, small, sizeof small);
  Append(&key, scalars, sizeof scalars);
  Append(&key, &problem.shape, sizeof problem.shape);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand)) continue;
    const Dims dims = problem.DimsOf(operand);
    Dims stride = problem.stride[i];
    for (size_t d = 0; d < stride.size(); ++d) stride[d] = dims[d] > 1 ? stride[d] : 0;
    Append(&key, &stride, sizeof stride);
  }
  Append(&key, &home, sizeof home);
  Append(&key, &in_place, sizeof in_place);
  Append(&key, &budget, sizeof budget);
  return key;
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
  const std::string key = KeyOf(problem, home, in_place, budget);
  if (const auto found = prescribed_.find(key); found != prescribed_.end()) return found->second;
  if (const PlanPointer* const kept = plans_.Find(key)) return *kept;
  const PlanRequest request = RequestFor(problem, home, budget);
  Result<PlanReport> made = BesideArena([&] { return ChoosePlan(request, in_place); });
  if (!made.ok() && made.status().code() == Code::kOutOfMemory) {
    const int64_t works =
        WorkingBudget(*stack_.device, request, ProfileFor(problem), made.status());
    return std::move(made)
        .status()
        .With(Format("a budget of %s is too small, %lld bytes work", BytesText(budget).c_str(),
                     static_cast<long long>(works)))
        .WithDetail(works);
  }
  OOC_ASSIGN(PlanReport report, std::move(made));
  if (Logs(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "plan %s", ToText(SummaryOf(report, ProfileFor(problem))).c_str());
  }
  if (plans_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return plans_.Put(key, std::make_shared<const PlanReport>(std::move(report)));
}

Result<PlanSummary> Context::Plan(const Problem& problem) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  Result<PlanPointer> plan = Lookup(problem, {}, {}, budget_);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  const PlanReport& report = *plan.value();
  PlanSummary summary = SummaryOf(report, ProfileFor(problem));
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
  Result<PlanPointer> booked = BookPlan(RequestFor(problem, {}, budget_), plan);
  if (!booked.ok()) return std::move(booked).status().With(ToString(problem));
  OOC_TRY(Settle());  // the plan that goes may still be run
  prescribed_[KeyOf(problem, {}, {}, budget_)] = std::move(booked).value();
  return {};
}

Result<PlanPointer> Context::BookPlan(const PlanRequest& request, const std::string& plan) {
  OOC_ASSIGN(const RankedCandidate priced, ParsePlan(request, ProfileFor(request.problem), plan));
  const int64_t bytes = priced.cost.device_bytes + 2 * request.bounce_bytes;
  if (bytes > request.budget) {
    return Error(Code::kOutOfMemory,
                 "the plan takes %s of the device, the budget is %s: shorter tiles or fewer slots "
                 "take less",
                 BytesText(bytes).c_str(), BytesText(request.budget).c_str())
        .WithDetail(bytes);
  }
  PlanReport report;
  report.request = request;
  report.cost = priced.cost;
  OOC_ASSIGN(report.booking, BesideArena([&] {
               return Book(*stack_.device, request, priced.candidate, request.budget);
             }));
  ++prepared_;
  return std::make_shared<const PlanReport>(std::move(report));
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
  std::string key = KeyOf(problem, home, in_place, bytes);
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

}  // namespace oocdnn
