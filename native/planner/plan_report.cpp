#include "planner/plan_report.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/price/cost.hpp"

namespace oocdnn {
namespace {

// Exact tiles may be larger than dense estimates (blocked channels, workspace), so the search may
// have to aim lower than the budget a few times.
constexpr int kAttempts = 12;

// While a better candidate might fit in a smaller cut, none is taken that is slower by this factor.
constexpr double kPatience = 1.5;

// Whether another candidate may do what one cannot.
bool IsRefusal(const Status& status) {
  return status.code() == Code::kOutOfMemory || status.code() == Code::kUnsupported;
}

// What one round of preparing candidates came to.
struct Round {
  bool booked = false;
  double overshoot = 1.0;          // the least exact bytes / budget among those that were too large
  double too_large_seconds = 0.0;  // price of the best of those; 0: none was
  Status last;
};

// Keeps the reason why a candidate could not be booked.
void NoteFailure(Status status, int64_t budget, double seconds, Round* round, PlanReport* report) {
  const std::string why = status.message();
  if (std::find(report->refused.begin(), report->refused.end(), why) == report->refused.end()) {
    report->refused.push_back(why);
  }
  if (IsTransient(status)) report->transient = true;
  if (status.code() == Code::kOutOfMemory) {
    const double over =
        static_cast<double>(status.detail()) / static_cast<double>(std::max<int64_t>(budget, 1));
    round->overshoot = round->overshoot > 1.0 ? std::min(round->overshoot, over) : over;
    if (round->too_large_seconds == 0) round->too_large_seconds = seconds;
  }
  round->last = std::move(status);
}

Round TryCandidates(Device& device, const PlanRequest& request, int64_t budget, bool patient,
                    const PlanSearch& search, PlanReport* report, int64_t* prepared) {
  Round round;
  for (const RankedCandidate& ranked : search.ranked) {
    const double seconds = ranked.cost.seconds;
    if (patient && round.too_large_seconds > 0 && seconds > kPatience * round.too_large_seconds) {
      break;
    }
    Result<Booking> booking = Book(device, request, ranked.candidate, budget);
    ++*prepared;
    if (booking.ok()) {
      report->booking = std::move(booking).value();
      report->cost = ranked.cost;
      round.booked = true;
      return round;
    }
    NoteFailure(std::move(booking).status(), budget, seconds, &round, report);
    if (!IsRefusal(round.last)) break;
  }
  return round;
}

// Whatever a booking is that fits, it is reported with what was found on the way.
PlanReport Completed(PlanReport report, const PlanSearch& search) {
  report.ranked = search.ranked;
  report.search_seconds += search.seconds;
  report.refused.insert(report.refused.end(), search.refused.begin(), search.refused.end());
  return report;
}

// The smallest tiles of all: what no search offered may still fit.
Result<PlanReport> AttemptLeast(Device& device, const PlanRequest& request, const Profile& profile,
                                int64_t* prepared, Status why_not) {
  PlanSearch least;
  for (size_t i = 0; i < request.engines.size(); ++i) {
    const bool admitted = !request.engines[i].name.empty() &&
                          (!request.reproducible || request.engines[i].properties.invariant);
    if (!admitted) continue;
    const Candidate candidate = LeastCandidate(request, static_cast<int>(i), profile);
    least.ranked.push_back({candidate, PriceOf(request, candidate, profile)});
  }
  PlanReport report;
  report.request = request;
  const Round round =
      TryCandidates(device, request, request.budget, false, least, &report, prepared);
  if (!round.booked) return round.last.code() == Code::kOutOfMemory ? round.last : why_not;
  return Completed(std::move(report), least);
}

// Searches for plans of less and less memory until one fits exactly. `first`: what the first search
// finds, where that is known.
Result<PlanReport> Attempt(Device& device, const PlanRequest& request, const Profile& profile,
                           bool patient, int64_t* prepared, const PlanSearch* first) {
  PlanReport report;
  report.request = request;
  PlanRequest aim = WithoutBounce(request);
  Status last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const bool known = attempt == 0 && first != nullptr;
    Result<PlanSearch> search = known ? *first : Search(aim, profile);
    if (!search.ok()) {
      // The first search speaks of the budget itself; a later one of an aim below it.
      return attempt == 0 || last.ok() ? std::move(search).status() : last;
    }
    const Round round =
        TryCandidates(device, aim, request.budget, patient, search.value(), &report, prepared);
    if (round.booked) return Completed(std::move(report), search.value());
    last = round.last;
    if (round.overshoot <= 1.0) return last;
    const double shrink = std::clamp(0.97 / round.overshoot, 0.3, 0.9);
    aim.budget = static_cast<int64_t>(static_cast<double>(aim.budget) * shrink);
  }
  return last;
}

}  // namespace

bool IsTransient(const Status& status) {
  switch (status.code()) {
    case Code::kOutOfMemory: return status.detail() == 0;
    case Code::kDeviceError:
    case Code::kInterrupted:
    case Code::kFileError: return true;
    default: return false;
  }
}

Status CheckPlannable(const Problem& problem) {
  OOC_TRY(Validate(problem));
  if (problem.shape.n > 0) return {};
  return Error(Code::kInvalidProblem, "the batch is empty: there is nothing to plan");
}

int64_t BounceWithin(int64_t budget, int64_t best) {
  const int64_t bytes = std::min(best, budget / 32);
  return bytes >= best / 32 ? bytes : 0;
}

Result<PlanReport> PlanAndBook(Device& device, const PlanRequest& request, const Profile& profile,
                               int64_t* prepared, const PlanSearch* search) {
  OOC_TRY(CheckReproducible(request));
  Result<PlanReport> report = Attempt(device, request, profile, true, prepared, search);
  if (report.ok() || !IsRefusal(report.status())) return report;
  bool transient = IsTransient(report.status());
  report = Attempt(device, request, profile, false, prepared, search);
  // A joint pass of several gradients gets no last resort: passes for each of them have one, and
  // are faster then.
  if (!report.ok() && IsRefusal(report.status()) && !request.problem.also.any()) {
    transient = transient || IsTransient(report.status());
    report = AttemptLeast(device, request, profile, prepared, std::move(report).status());
  }
  if (report.ok()) report->transient = report->transient || transient;
  return report;
}

Result<int64_t> LeastBudget(Device& device, const PlanRequest& request, const Profile& profile,
                            Status failure) {
  constexpr int kSteps = 40;
  constexpr int64_t kGrain = 64;  // what is booked is a multiple of it
  constexpr std::chrono::seconds kPatience{2};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto late = [&] { return std::chrono::steady_clock::now() >= deadline; };
  int64_t prepared = 0;
  const auto plan = [&](int64_t budget) {
    PlanRequest tried = request;
    tried.budget = budget;
    return PlanAndBook(device, tried, profile, &prepared).status();
  };
  int64_t fails = request.budget;
  int64_t works = std::max<int64_t>({failure.detail(), request.budget + 1, 1024});
  Status tried = plan(works);
  for (int step = 1; !tried.ok() && step < kSteps; ++step) {
    if (tried.code() != Code::kOutOfMemory) return tried;
    fails = works;
    works += late() ? works : works / 4;
    tried = plan(works);
  }
  if (!tried.ok()) return failure;
  // Steps down that double, since what the failed plan says is mostly close, then bisection.
  int64_t low = fails / kGrain, high = CeilDiv(works, kGrain), step = 1;
  while (high - low > 1 && !late()) {
    const bool near = step > 0 && high - step > low;
    const int64_t middle = near ? high - step : low + (high - low) / 2;
    const bool fits = plan(middle * kGrain).ok();
    (fits ? high : low) = middle;
    step = fits ? 2 * step : 0;
  }
  return std::min(works, high * kGrain);
}

bool PlanReport::CopiesNoSamples() const {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool samples = booking.problem.Has(operand) && Moves(booking.problem, operand, Axis::kN);
    if (samples && !booking.slot[i].empty()) return false;
  }
  return true;
}

bool PlanReport::Beats(const PlanReport& other) const {
  const bool comparable = run_seconds > 0.0 || other.run_seconds == 0.0;
  return comparable && cost.seconds < other.cost.seconds;
}

PlanSummary SummaryOf(const PlanReport& report, const Profile& profile) {
  const RankedCandidate chosen{report.booking.candidate, report.cost};
  const Profile rates = report.rate_updates.AddedTo(profile);
  PlanSummary summary = Summarize(report.request, rates, chosen, report.ranked, report.refused);
  summary.engine = report.booking.usual.executable().engine();
  summary.prepared = true;
  summary.remembered = report.remembered;
  summary.search_seconds = report.search_seconds;
  summary.booked_bytes = report.booking.bytes;
  return summary;
}

}  // namespace oocdnn
