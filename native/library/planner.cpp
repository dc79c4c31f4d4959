// The plans of a context: made, kept, and recalled from the file of plans.
#include "library/planner.hpp"

#include <algorithm>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "geom/engines.hpp"
#include "geom/skipped_rows.hpp"
#include "model/search/refine.hpp"
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
// whatever the budget, or from engines with the same bits: the first that is invariant, and its
// like. Names of the others are left empty, and of those that do not serve the problem unless none
// does: then they say why.
std::vector<EngineInfo> EnginesFor(const Device& device, const Problem& problem,
                                   bool reproducible) {
  std::vector<EngineInfo> engines = device.engines();
  const auto serves = [&](const EngineInfo& engine) { return Serves(engine, problem); };
  const bool served = std::any_of(engines.begin(), engines.end(), serves);
  const EngineInfo* first = nullptr;
  for (EngineInfo& engine : engines) {
    const bool alike = first == nullptr || (first->direct_sums && engine.direct_sums);
    const bool admitted = !reproducible || (engine.properties.invariant && alike);
    if (!admitted || (served && !serves(engine))) {
      engine.name.clear();
    } else if (first == nullptr) {
      first = &engine;
    }
  }
  return engines;
}

// Callers that want several gradients ask for a joint pass at each call, and fall back to single
// passes. A refusal for lack of memory on the device is not kept: the free memory may change.
bool StaysRefused(const Problem& problem, int64_t budget, const Status& why) {
  if (!problem.also.any()) return false;
  return why.code() == Code::kUnsupported ||
         (why.code() == Code::kOutOfMemory && why.detail() > budget);
}

constexpr double kLook = 0.3;  // seconds, on a GPU

}  // namespace

Planner::Planner(Session& session)
    : session_(session), memory_(PlanFileOf(session.options()), PlannerOf(*session.stack().base)) {}

std::string Planner::KeyOf(const Problem& problem, const Terms& terms) {
  std::string key = oocdnn::KeyOf(problem, terms.tiers, terms.in_place, terms.workspace);
  key.append(reinterpret_cast<const char*>(&terms.budget), sizeof terms.budget);
  return key;
}

// The number of a tensor's first use identifies the tensor.
std::string Planner::KeyOf(const Program& program, const std::vector<Terms>& terms) {
  std::string key(program.traversal() == Traversal::kRows ? "rows" : "samples");
  for (size_t i = 0; i < program.size(); ++i) {
    key += KeyOf(program[i], terms[i]);
    for (int o = 0; o < kOperands; ++o) {
      const ProgramTensor* const tensor = program.TensorOf(i, static_cast<Operand>(o));
      if (tensor == nullptr) continue;
      const TensorUse& first = tensor->uses.front();
      key += Format(" %d:%zu.%d%s", o, first.node, Index(first.operand), tensor->outer ? "o" : "");
    }
  }
  return key;
}

// Whether it is pinned or staged, or in a file, a prescribed plan is for all that crosses the wire.
std::string Planner::PrescriptionOf(const Problem& problem, Terms terms) {
  for (Tier& tier : terms.tiers) tier = CrossesWire(tier) ? Tier::kPinned : tier;
  return KeyOf(problem, terms);
}

// Measuring takes device memory, so that of the arena goes first.
const Profile& Planner::ProfileFor(const Problem& problem) {
  if (profile_ == nullptr || profile_->Lacks(problem)) {
    static_cast<void>(session_.FreeArena());
  }
  return Machine().For(problem);
}

const Profile& Planner::ProfileFor(const Program& program) {
  for (const Problem& node : program) ProfileFor(node);
  return Machine().For(program.front());
}

MachineProfile& Planner::Machine() {
  if (profile_ == nullptr) {
    const bool wired = !session_.stack().base->capabilities().shares_host_memory;
    profile_ = std::make_unique<MachineProfile>(*session_.stack().base, session_.options().profile,
                                                session_.budget(),
                                                wired ? session_.options().busy_gpus : 0);
  }
  return *profile_;
}

Result<PlanReport> Planner::ChoosePlan(const PlanRequest& request) {
  const Profile& profile = ProfileFor(request.problem);
  if (request.in_place != InPlace{}) return ChooseInCore(request, profile);
  return PlanAndTime(session_.device(), request, profile, &TimedOf(request), &prepared_);
}

// As a whole where an engine has the workspace that it wants. Else the batch is divided, or the
// problem is in tiles, which the device then copies within its memory: either may be faster than
// what an engine does without that workspace. Who limits workspaces is told what is the fastest.
Result<PlanReport> Planner::ChooseInCore(const PlanRequest& request, const Profile& profile) {
  Device& device = session_.device();
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

PlanRequest Planner::RequestFor(const Problem& problem, const Terms& terms) const {
  PlanRequest request;
  request.problem = problem;
  request.tiers = terms.tiers;
  request.in_place = terms.in_place;
  request.budget = terms.budget;
  request.workspace = terms.workspace;
  // Only what crosses a wire bounces.
  if (!OnDevice(problem, terms.tiers)) {
    request.bounce_bytes =
        BounceWithin(terms.budget, session_.device().capabilities().bounce_bytes);
  }
  request.engines = EnginesFor(session_.device(), problem, session_.options().reproducible);
  request.reproducible = session_.options().reproducible;
  request.exhaustive = session_.options().planning == Planning::kExhaustive;
  request.measure = session_.options().planning == Planning::kMeasure;
  // Calls in core may be captured later, when nothing can be timed.
  request.gradual =
      session_.options().planning == Planning::kGradual && !OnDevice(problem, terms.tiers);
  if (request.exhaustive || request.measure) {
    request.deadline = DeadlineIn(session_.options().planning_seconds);
  }
  return request;
}

PlanRequest Planner::CallRequestFor(const Problem& problem, const Terms& terms) const {
  PlanRequest request = RequestFor(WithoutSkippedRows(problem, terms.tiers), terms);
  if (pins_) request.pin_bytes = session_.AutoPinBytes();
  return request;
}

Result<PlanReport> Planner::MakePlan(const PlanRequest& request) {
  if (!memory_.remembers()) return SearchPlan(request, std::nullopt);
  const uint64_t key = oocdnn::KeyOf(request, ProfileFor(request.problem));
  if (const auto kept = memory_.Find(key, request.budget)) {
    if (kept->plan.empty()) {
      return TooSmall(Error(Code::kOutOfMemory, "no plan fits, as an earlier search found"),
                      request.budget, kept->bytes);
    }
    Result<PlanReport> recalled = RecallPlan(request, *kept);
    if (recalled.ok()) return recalled;
    if (IsTransient(recalled.status())) return SearchPlan(request, std::nullopt);
    memory_.Refute(key, request.budget, recalled.status());
  }
  return SearchPlan(request, key);
}

// A plan in place is not remembered, because it is not searched for, but where runs were timed; nor
// is one that a moment's lack of memory has led to.
void Planner::Remember(uint64_t key, const PlanRequest& request, const PlanReport& report) {
  const Booking& booking = report.booking;
  if (booking.in_place != InPlace{} && report.run_seconds == 0.0) return;
  if (report.transient) return;
  memory_.Put(key, request.budget,
              {ToString(request.problem), ToText(request, booking.candidate), booking.bytes,
               report.run_seconds});
}

// That nothing fits is remembered where it is a matter of the budget and not of what the device has
// left.
Result<PlanReport> Planner::SearchPlan(const PlanRequest& request, std::optional<uint64_t> key) {
  Result<PlanReport> made = session_.BesideArena([&] { return ChoosePlan(request); });
  if (made.ok() && key) Remember(*key, request, made.value());
  if (made.ok() || made.status().code() != Code::kOutOfMemory) return made;
  const int64_t needed = made.status().detail();
  OOC_ASSIGN(const int64_t works,
             LeastBudget(session_.device(), request, ProfileFor(request.problem), made.status()));
  if (key && std::min(needed, works) > request.budget) {
    memory_.Put(*key, request.budget, {ToString(request.problem), "", works, 0.0});
  }
  return TooSmall(std::move(made).status(), request.budget, works);
}

Result<PlanReport> Planner::RecallPlan(const PlanRequest& request, const RememberedPlan& kept) {
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

Result<PlanPointer> Planner::Prescribed(const PlanRequest& request, const std::string& plan) {
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
Result<PlanReport> Planner::BookPlan(const PlanRequest& request, const Candidate& candidate,
                                     double run_seconds) {
  PlanReport report;
  OOC_ASSIGN(report.booking, session_.BesideArena([&] {
    return Book(session_.device(), PricedFor(request, candidate), candidate, request.budget);
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

Result<PlanPointer> Planner::Lookup(const Problem& problem, const Terms& terms) {
  if (!prescribed_.empty()) {
    const auto prescribed = prescribed_.find(PrescriptionOf(problem, terms));
    if (prescribed != prescribed_.end()) return prescribed->second;
  }
  const std::string key = KeyOf(problem, terms);
  if (PlanPointer* const kept = plans_.Find(key)) {
    if ((*kept)->settled) return *kept;
    return LookAgain(CallRequestFor(problem, terms), kept);
  }
  if (const Status* const why = refused_.Find(key)) return *why;
  Result<PlanReport> made = MakePlan(CallRequestFor(problem, terms));
  if (!made.ok()) {
    if (StaysRefused(problem, terms.budget, made.status())) refused_.Put(key, made.status());
    return std::move(made).status();
  }
  PlanReport report = std::move(made).value();
  if (Logs(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "plan %s", ToText(SummaryOf(report, ProfileFor(problem))).c_str());
  }
  if (plans_.full()) OOC_TRY(session_.Settle());  // the one that goes may still be run
  return plans_.Put(key, std::make_shared<const PlanReport>(std::move(report)));
}

// Each look may take as long as all before it, so that there are few, and what preparing some tiles
// takes. Where one fails, none follows.
Result<PlanPointer> Planner::LookAgain(const PlanRequest& request, PlanPointer* kept) {
  const PlanReport& plan = **kept;
  TimedTiles& timed = TimedOf(request);
  timed.call_seconds += plan.cost.seconds;
  const double look = std::max(timed.planning_seconds, kLook);
  if (!MayLook(timed, look, plan.cost.seconds)) return *kept;
  OOC_TRY(session_.Settle());  // the one that goes may still be run
  Result<PlanReport> made = session_.BesideArena([&] { return ChoosePlan(request); });
  const bool better = made.ok() && made->Beats(plan);
  const bool settled = !made.ok() || made->settled;
  PlanReport next = better ? std::move(made).value() : plan;
  next.settled = settled;
  if (better) Remember(oocdnn::KeyOf(request, ProfileFor(request.problem)), request, next);
  return *kept = std::make_shared<const PlanReport>(std::move(next));
}

TimedTiles& Planner::TimedOf(const PlanRequest& request) {
  const std::string key = TilesKeyOf(request);
  TimedTiles* const known = timed_.Find(key);
  return known != nullptr ? *known : timed_.Put(key, {});
}

void Planner::Forget() {
  plans_.Clear();
  timed_.Clear();
  refused_.Clear();
  programs_.Clear();
}

std::vector<PlanRequest> Planner::RequestsFor(const Program& program,
                                              const std::vector<Terms>& terms) const {
  std::vector<PlanRequest> nodes;
  const auto deadline = DeadlineIn(session_.options().planning_seconds);
  for (size_t i = 0; i < program.size(); ++i) {
    nodes.push_back(RequestFor(program[i], terms[i]));
    nodes.back().deadline = deadline;
  }
  return nodes;
}

Result<ProgramPlan> Planner::Lookup(const Program& program, const std::vector<Terms>& terms) {
  const std::string key = KeyOf(program, terms);
  if (const ProgramPlan* const kept = programs_.Find(key)) return *kept;
  const Profile& profile = ProfileFor(program);
  Result<std::vector<ProgramSection>> made = session_.BesideArena([&] {
    return PlanProgram(session_.device(), program, RequestsFor(program, terms), profile,
                       &prepared_);
  });
  if (!made.ok()) return std::move(made).status();
  if (programs_.full()) OOC_TRY(session_.Settle());  // the one that goes may still be run
  return programs_.Put(key, std::make_shared<std::vector<ProgramSection>>(std::move(made).value()));
}

Result<double> Planner::Price(const Program& program, const std::vector<Terms>& terms) {
  return PriceProgram(session_.device(), program, RequestsFor(program, terms), ProfileFor(program));
}

Status Planner::Prescribe(const Problem& problem, const Terms& terms, const std::string& plan) {
  OOC_ASSIGN(PlanPointer booked, Prescribed(CallRequestFor(problem, terms), plan));
  OOC_TRY(session_.Settle());  // the plan that goes may still be run
  prescribed_[PrescriptionOf(problem, terms)] = std::move(booked);
  return {};
}

Status Planner::Keep(const Problem& problem, const Terms& terms, const PlanPointer& plan) {
  std::string key = KeyOf(problem, terms);
  if (plans_.Find(key) != nullptr) return {};
  if (plans_.full()) OOC_TRY(session_.Settle());  // the one that goes may still be run
  plans_.Put(std::move(key), plan);
  return {};
}

}  // namespace oocdnn
