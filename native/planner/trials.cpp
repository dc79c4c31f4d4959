#include "planner/trials.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/search/axis_choices.hpp"
#include "model/search/refine.hpp"
#include "planner/time_run.hpp"

namespace oocdnn {
namespace {

constexpr int kSearches = 3;        // with what the runs before taught
constexpr double kFarSlower = 1.5;  // than the best so far: not worth a try

class Trials {
 public:
  Trials(Device& device, const PlanRequest& request, Profile* refined, PlanReport* report,
         int64_t* prepared)
      : device_(device),
        request_(request),
        refined_(*refined),
        best_(*report),
        prepared_(*prepared) {}

  void Run() {
    tried_.push_back(best_.booking.candidate);
    const double seconds = TimeRun(device_, best_.booking, request_.budget);
    if (seconds == 0.0) return;
    best_.run_seconds = seconds;
    best_.cost = Learn(request_, best_.booking.candidate, seconds, &refined_);
    std::vector<RankedCandidate> next = best_.ranked;
    for (const RankedCandidate& kind : Kinds()) next.push_back(kind);
    for (int search = 0; search < kSearches && !Late(); ++search) {
      if (!TryAll(next)) return;
      Result<PlanSearch> found = Search(WithoutBounce(request_), refined_);
      if (!found.ok()) return;
      next = std::move(found).value().ranked;
    }
  }

 private:
  [[nodiscard]] bool Late() const { return std::chrono::steady_clock::now() >= request_.deadline; }

  // The best of each other kind of tile, where arithmetic is what takes longest.
  [[nodiscard]] std::vector<RankedCandidate> Kinds() const {
    std::vector<RankedCandidate> kinds;
    if (!ArithmeticBounds(best_.cost) || Late()) return kinds;
    for (const PlanSearch& kind :
         OtherAxisChoices(WithoutBounce(request_), refined_, {best_.booking.candidate, best_.cost},
                          kFarSlower)) {
      kinds.push_back(kind.ranked.front());
    }
    return kinds;
  }

  // Whether any was tried.
  bool TryAll(const std::vector<RankedCandidate>& ranked) {
    const size_t before = tried_.size();
    for (const auto& [candidate, _] : ranked) {
      if (Late()) break;
      if (std::find(tried_.begin(), tried_.end(), candidate) != tried_.end()) continue;
      const double predicted = PriceOf(request_, candidate, refined_).seconds;
      if (predicted > kFarSlower * best_.cost.seconds) continue;
      tried_.push_back(candidate);
      Try(candidate);
    }
    return tried_.size() > before;
  }

  void Try(const Candidate& candidate) {
    Result<Booking> booking = Book(device_, WithoutBounce(request_), candidate, request_.budget);
    ++prepared_;
    if (!booking.ok()) return;
    const double seconds = TimeRun(device_, booking.value(), request_.budget);
    if (seconds == 0.0) return;
    const Cost cost = Learn(request_, candidate, seconds, &refined_);
    if (cost.seconds >= best_.cost.seconds) return;
    best_.booking = std::move(booking).value();
    best_.run_seconds = seconds;
    best_.cost = cost;
  }

  Device& device_;
  const PlanRequest& request_;
  Profile& refined_;
  PlanReport& best_;
  int64_t& prepared_;
  std::vector<Candidate> tried_;
};

}  // namespace

Profile TryPlans(Device& device, const PlanRequest& request, const Profile& profile,
                 PlanReport* report, int64_t* prepared) {
  Profile refined = profile;
  Trials(device, request, &refined, report, prepared).Run();
  return refined;
}

}  // namespace oocdnn
