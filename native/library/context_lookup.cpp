// The plans of a context as its calls look for them: kept, or made now, or by and by.
#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "library/context.hpp"
#include "planner/timed_tiles.hpp"
#include "store/plan_key.hpp"

namespace oocdnn {
namespace {

// Whoever wants several gradients asks for them in one pass at each call, and is content with less.
// What the device has left may change.
bool StaysRefused(const Problem& problem, int64_t budget, const Status& why) {
  if (!problem.also.any()) return false;
  return why.code() == Code::kUnsupported ||
         (why.code() == Code::kOutOfMemory && why.detail() > budget);
}

constexpr double kLook = 0.3;  // seconds, on a GPU

}  // namespace

Result<PlanPointer> Context::Lookup(const Problem& problem, const Terms& terms) {
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
  if (plans_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return plans_.Put(key, std::make_shared<const PlanReport>(std::move(report)));
}

// Each look may take as long as all before it, so that there are few, and what preparing some tiles
// takes. Where one fails, none follows.
Result<PlanPointer> Context::LookAgain(const PlanRequest& request, PlanPointer* kept) {
  const PlanReport& plan = **kept;
  TimedTiles& timed = TimedOf(request);
  timed.call_seconds += plan.cost.seconds;
  const double look = std::max(timed.planning_seconds, kLook);
  if (!MayLook(timed, look, plan.cost.seconds)) return *kept;
  OOC_TRY(Settle());  // the one that goes may still be run
  Result<PlanReport> made = BesideArena([&] { return ChoosePlan(request); });
  const bool better = made.ok() && made->Beats(plan);
  const bool settled = !made.ok() || made->settled;
  PlanReport next = better ? std::move(made).value() : plan;
  next.settled = settled;
  if (better) Remember(oocdnn::KeyOf(request, ProfileFor(request.problem)), request, next);
  return *kept = std::make_shared<const PlanReport>(std::move(next));
}

TimedTiles& Context::TimedOf(const PlanRequest& request) {
  const std::string key = TilesKeyOf(request);
  TimedTiles* const known = timed_.Find(key);
  return known != nullptr ? *known : timed_.Put(key, {});
}

void Context::ForgetPlans() {
  plans_.Clear();
  timed_.Clear();
  refused_.Clear();
  chains_.Clear();
  gradients_.Clear();
}

}  // namespace oocdnn
