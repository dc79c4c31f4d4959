#include "planner/in_place.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "model/price/cuts.hpp"
#include "model/price/footprint.hpp"
#include "model/price/orders.hpp"
#include "model/price/rank.hpp"
#include "model/search/micro_batch.hpp"
#include "planner/time_run.hpp"

namespace oocdnn {
namespace {

// What is predicted to be so much slower than a plan that was timed is not worth a try. A whole on
// another engine is known less well: profiles hold 3x3 filters of many channels.
constexpr double kFarSlower = 1.5, kFarSlowerWhole = 4.0;

Status CheckIndexable(const PlanRequest& request, const Candidate& candidate) {
  const Problem& problem = request.problem;
  const Footprint footprint(problem, request.engines[static_cast<size_t>(candidate.engine)]);
  if (footprint.Indexable(TileShape(problem, candidate.tiling))) return {};
  return Error(Code::kUnsupported, "a tensor has 2^31 elements or more: it takes tiles");
}

class InPlacePlans {
 public:
  InPlacePlans(Device& device, const PlanRequest& request, const Profile& profile, Batch batch,
               int64_t* prepared)
      : device_(device),
        request_(request),
        hoped_(PricedInPlace(request, request.in_place)),
        profile_(profile),
        batch_(batch),
        prepared_(*prepared) {}

  Result<PlanReport> Run() {
    OOC_ASSIGN(const std::vector<int64_t> sizes, Sizes());
    for (size_t i = 0; i < request_.engines.size(); ++i) {
      if (request_.engines[i].name.empty()) continue;
      larger_ = 0.0;
      past_ = false;
      for (const int64_t samples : sizes) {
        const Candidate candidate = DividedCandidate(request_, static_cast<int>(i), samples);
        if (const Status status = Try(candidate); !status.ok()) Note(status);
        if (past_) break;
      }
    }
    if (!best_) return last_;
    if (best_->cost.seconds > kFarSlower * missed_seconds_) return missed_;
    best_->refused = std::move(refused_);
    return std::move(*best_);
  }

 private:
  // Samples of the parts, the whole first.
  [[nodiscard]] Result<std::vector<int64_t>> Sizes() const {
    const int64_t samples = request_.problem.shape.n;
    if (!batch_.divided || samples > kMostSamples) return std::vector<int64_t>{samples};
    OOC_ASSIGN(std::vector<int64_t> sizes, MicroBatchSizes(BatchPolicy::kPowersOfTwo, samples));
    std::reverse(sizes.begin(), sizes.end());
    return sizes;
  }

  // Engines are preferred in their order, and fewer parts, unless others are clearly faster.
  [[nodiscard]] bool Faster(const Cost& cost) const {
    return !best_ || cost.seconds * kEngineGain < best_->cost.seconds;
  }

  [[nodiscard]] bool WorthTrying(const Cost& cost) const {
    if (!batch_.timed) return Faster(cost);
    const double far = batch_.divided ? kFarSlower : kFarSlowerWhole;
    return !best_ || cost.seconds < far * best_->cost.seconds;
  }

  Status Try(const Candidate& candidate) {
    const Tiling& tiling = candidate.tiling;
    OOC_TRY(CheckIndexable(request_, candidate));
    OOC_TRY(CheckReproducible(request_));
    if (request_.reproducible && !KeepsSummationOrder(request_.problem, tiling)) {
      return Error(Code::kUnsupported, "a divided batch is summed up in another order");
    }
    const Cost predicted = PriceOf(hoped_, candidate, profile_);
    if (!WorthTrying(predicted)) return {};
    Result<Booking> booking = Prepare(hoped_, candidate);
    if (!booking.ok()) return Missed(std::move(booking).status(), predicted.seconds);
    PlanReport report;
    report.booking = std::move(booking).value();
    if (batch_.timed) OOC_TRY(TimeIt(candidate, &report));
    report.request = PricedInPlace(request_, report.booking.in_place);
    report.cost = PriceOf(report.request, candidate, profile_, report.run_seconds);
    report.cost.device_bytes = report.booking.bytes;
    past_ =
        batch_.timed && larger_ > 0.0 && report.cost.seconds > larger_ && !WorthTrying(report.cost);
    larger_ = report.cost.seconds;
    if (Faster(report.cost)) best_ = std::move(report);
    return {};
  }

  // What cannot be timed is only worth its prediction where no way of computing is left out.
  Status TimeIt(const Candidate& candidate, PlanReport* report) {
    report->run_seconds = TimeRun(device_, report->booking, request_.budget);
    if (report->run_seconds > 0.0) return {};
    if (!batch_.divided) {
      report->run_seconds = SecondsByPart(candidate);
      return {};
    }
    PlanRequest picky = hoped_;
    picky.first_choice = true;
    OOC_ASSIGN(report->booking, Prepare(picky, candidate));
    return {};
  }

  // Of the whole, from the largest part by halves that can be timed; 0: from none.
  double SecondsByPart(const Candidate& whole) {
    const int64_t samples = request_.problem.shape.n;
    int64_t bytes = 0;
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      if (request_.problem.Uses(operand)) bytes = Add(bytes, request_.problem.BytesOf(operand));
    }
    int64_t part = samples;
    while (part > 1 && bytes / samples * part > request_.budget / 2) part = CeilDiv(part, 2);
    if (part == samples) return 0.0;
    const Result<Booking> booking = Prepare(hoped_, DividedCandidate(request_, whole.engine, part));
    if (!booking.ok()) return 0.0;
    const double seconds = TimeRun(device_, booking.value(), request_.budget);
    return seconds * static_cast<double>(samples) / static_cast<double>(part);
  }

  Result<Booking> Prepare(const PlanRequest& request, const Candidate& candidate) {
    ++prepared_;
    return Book(device_, request, candidate, request_.budget);
  }

  // Who asks for the first choice alone has other ways than an engine that is far slower.
  Status Missed(Status why, double predicted_seconds) {
    if (request_.first_choice && why.code() == Code::kOutOfMemory &&
        predicted_seconds < missed_seconds_) {
      missed_ = why;
      missed_seconds_ = predicted_seconds;
    }
    return why;
  }

  void Note(const Status& status) {
    last_ = status;
    refused_.push_back(status.message());
  }

  Device& device_;
  const PlanRequest& request_;
  const PlanRequest hoped_;
  const Profile& profile_;
  const Batch batch_;
  int64_t& prepared_;
  std::optional<PlanReport> best_;
  // The best that was refused for want of memory, by prediction, and why.
  double missed_seconds_ = kNever;
  Status missed_;
  double larger_ = 0.0;  // seconds with the larger parts before, on the same engine; 0: unknown
  bool past_ = false;    // smaller parts on this engine are slower and slower
  std::vector<std::string> refused_;
  Status last_ = Error(Code::kUnsupported, "there is no engine");
};

}  // namespace

PlanRequest PricedInPlace(const PlanRequest& request, const InPlace& in_place) {
  PlanRequest changed = request;
  for (int i = 0; i < kOperands; ++i) {
    if (in_place[i]) changed.tiers[i] = Tier::kTile;
  }
  return changed;
}

PlanRequest PricedFor(const PlanRequest& request, const Candidate& candidate) {
  return candidate.tiling.DividesBatch() ? PricedInPlace(request, request.in_place) : request;
}

Result<PlanReport> PlanInPlace(Device& device, const PlanRequest& request, const Profile& profile,
                               Batch batch, int64_t* prepared) {
  return InPlacePlans(device, request, profile, batch, prepared).Run();
}

}  // namespace oocdnn
