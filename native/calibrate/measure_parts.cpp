// What workspaces are divided by: how long parts of a batch take with how much of it.
#include <algorithm>
#include <utility>

#include "base/config.hpp"
#include "calibrate/measure.hpp"
#include "planner/in_place.hpp"
#include "planner/time_run.hpp"

namespace oocdnn {
namespace {

// An engine is asked so often for a way with less workspace than the one before.
constexpr int kWays = 6;
// What is predicted to be so much slower than a part that needs no workspace is not looked at.
constexpr double kHopeless = 10.0;

class PartsTimed {
 public:
  PartsTimed(Device& device, const PlanRequest& request, const Profile& profile, int64_t* prepared)
      : device_(device),
        request_(PricedInPlace(request, request.in_place)),
        batch_(request.problem.shape.n),
        profile_(profile),
        prepared_(*prepared) {}

  // Of two such parts, if there is more than one: what adds to what is there is part of the
  // question, and what is left of the batch is not.
  void Measure(int64_t samples) {
    request_.problem.shape.n = samples < batch_ ? 2 * samples : batch_;
    frugal_seconds_ = 0.0;
    for (size_t i = 0; i < request_.engines.size(); ++i) {
      const EngineInfo& engine = request_.engines[i];
      if (engine.name.empty() || IsLastResort(engine)) continue;
      MeasureOn(DividedCandidate(request_, static_cast<int>(i), samples), samples);
    }
  }

  Result<std::vector<MicroBatch>> Take() && {
    if (!found_.empty()) return std::move(found_);
    return std::move(why_not_);
  }

 private:
  void MeasureOn(const Candidate& candidate, int64_t samples) {
    const double predicted = PriceOf(request_, candidate, profile_).seconds;
    if (frugal_seconds_ > 0.0 && predicted > kHopeless * frugal_seconds_) return;
    PlanRequest asked = request_;
    for (int way = 0; way < kWays; ++way) {
      const Status status = MeasureWay(&asked, candidate, samples);
      if (!status.ok()) why_not_ = status;
      if (!status.ok() || asked.workspace < 0) return;
    }
  }

  // Leaves the next limit in the request, below 0 where there is no less.
  Status MeasureWay(PlanRequest* asked, const Candidate& candidate, int64_t samples) {
    ++prepared_;
    OOC_ASSIGN(const Booking booking, Book(device_, *asked, candidate, asked->budget));
    const double run_seconds = TimeRun(device_, booking, asked->budget);
    if (run_seconds == 0.0) {
      return Error(Code::kOutOfMemory, "a part of %lld samples cannot be timed within %s",
                   static_cast<long long>(samples), BytesText(asked->budget).c_str());
    }
    const PlanRequest seen = PricedInPlace(*asked, booking.in_place);
    const double all = PriceOf(seen, candidate, profile_, run_seconds).seconds;
    const int64_t workspace = booking.WorkspaceBytes();
    if (workspace == 0) frugal_seconds_ = all;
    const double one = all / static_cast<double>(candidate.tiling.Tiles());
    found_.push_back({samples, one, workspace});
    asked->workspace = workspace - 1;
    return {};
  }

  Device& device_;
  PlanRequest request_;
  const int64_t batch_;
  const Profile& profile_;
  int64_t& prepared_;
  double frugal_seconds_ = 0.0;  // of what was measured last without workspace; 0: nothing was
  std::vector<MicroBatch> found_;
  Status why_not_ = Error(Code::kUnsupported, "there is no engine");
};

}  // namespace

Result<std::vector<MicroBatch>> MeasureParts(Device& device, const PlanRequest& request,
                                             const Profile& profile, BatchPolicy policy,
                                             int64_t* prepared) {
  OOC_ASSIGN(const std::vector<int64_t> sizes, MicroBatchSizes(policy, request.problem.shape.n));
  PartsTimed parts(device, request, profile, prepared);
  std::for_each(sizes.rbegin(), sizes.rend(), [&](int64_t samples) { parts.Measure(samples); });
  return std::move(parts).Take();
}

}  // namespace oocdnn
