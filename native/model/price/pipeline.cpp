// PriceOf: the length of a candidate's pipeline, by walking its schedule with three engines; and
// TimelineOf, which tells what it met on the way.
//
// The rules, which the tile loop follows with events and the tests simulate independently:
//  - each engine does its work in the order of the steps;
//  - a fetch waits until the last compute that used its slot has ended;
//  - rows that are rolled over are moved by the compute engine before the step's convolution; the
//    slot that they come from is free only then;
//  - a step's compute waits for the step's fetches and, where it begins an output tile, for the
//    drain of what the output's slot held;
//  - an output tile is finished and drained after its last step;
//  - a tile of dy that is not fetched is restored before its first convolution, and one of x that
//    has a prologue goes through that;
//  - what waits for another engine begins a hop later;
//  - a copy begins with what it costs beyond its bytes;
//  - bytes that are fetched and drained at the same time share the wire, at the rate that the
//    profile gives for both.
#include <algorithm>

#include "base/checked.hpp"
#include "model/price/cost.hpp"
#include "model/price/engines.hpp"
#include "model/price/footprint.hpp"
#include "model/price/pins.hpp"
#include "model/price/setup_cost.hpp"
#include "model/price/tapered.hpp"
#include "model/price/timeline.hpp"

namespace oocdnn {
namespace {

// Steps that are walked. A longer schedule takes its bytes and busy times from exact totals, and
// the waits between the engines from the second half of the walk.
constexpr int64_t kWalk = 512;
// And the most that are walked for the last of them to be told of.
constexpr int64_t kDrawn = 100000;

// The elements that a step rolls over.
int64_t MovedOf(const OperandStep& operand) {
  int64_t moved = operand.kept;
  for (int d = 0; d < 6; ++d) {
    if (d != operand.roll_axis) moved = Mul(moved, operand.box.extent[d]);
  }
  return moved;
}

// Turns steps into pieces of work for the three engines, and keeps account of them.
class Pipeline {
 public:
  // `steps`: how many will be taken.
  Pipeline(const PlanRequest& request, const Candidate& candidate, const Rates& rates,
           int64_t steps)
      : roles_(rates.roles()),
        tiling_(candidate.tiling),
        rates_(rates),
        engines_(rates.HopSeconds(), rates.SpeedTogether(), steps) {
    usual_ = SecondsOf(request.problem, rates, tiling_, false);
    if (tiling_.tapered()) short_ = SecondsOf(request.problem, rates, tiling_, true);
    const AxisArray counts = CountsOf(tiling_);
    for (const Operand operand : roles_.used()) {
      const int i = Index(operand);
      steps_[i] = rates.memory().StepsOf(operand, counts);
      free_[i].resize(static_cast<size_t>(std::max(candidate.depths[i], 1)), Engines::kNothing);
    }
  }

  void Take(const Step& step) {
    Engines::Computation run;
    run.step = step.number;
    run.fetch = Fetch(step);
    Move(step);
    run.drain = Awaited(step);
    const TileSeconds& tile = tiling_.IsShort(step.index) ? short_ : usual_;
    run.seconds = tile.run + (step.operand[Index(roles_.sum())].leave ? tile.finish : 0.0) +
                  (step.operand[Index(Operand::kY)].enter ? tile.restore : 0.0) +
                  (step.operand[Index(roles_.source())].enter ? tile.normalize : 0.0);
    busy_.compute_seconds += run.seconds;
    const int64_t computed = engines_.Compute(run);
    for (const Operand operand : roles_.read()) Free(step, operand) = computed;
    for (const Operand operand : roles_.written()) {
      if (step.operand[Index(operand)].leave) Drain(step, operand, computed);
    }
  }

  // Has the engines do all of it.
  void Run() { engines_.Run(); }
  [[nodiscard]] const Engines& engines() const { return engines_; }
  // The busy times of what was taken so far.
  [[nodiscard]] const Cost& busy() const { return busy_; }

 private:
  int64_t& Free(const Step& step, Operand operand) {
    const int i = Index(operand);
    return free_[i][static_cast<size_t>(step.operand[i].slot)];
  }

  // The last of the drains that a step's computation waits for: of a sum's slot where its tile
  // begins, and where it ends of what the finishing pass makes.
  int64_t Awaited(const Step& step) {
    int64_t last = Engines::kNothing;
    for (const Operand operand : roles_.written()) {
      const OperandStep& mine = step.operand[Index(operand)];
      const bool finished = operand == Operand::kZ || operand == Operand::kSaved;
      const bool begins = finished ? mine.leave : mine.enter;
      if (begins) last = std::max(last, Free(step, operand));
    }
    return last;
  }

  void Drain(const Step& step, Operand operand, int64_t computed) {
    const double seconds = TransferSeconds(step, operand);
    if (seconds == 0.0) return;  // the result is where it belongs
    busy_.drain_seconds += seconds;
    Free(step, operand) = engines_.Drain(CopyOf(step, operand, seconds, computed));
  }

  // The last of the step's fetches.
  int64_t Fetch(const Step& step) {
    int64_t last = Engines::kNothing;
    for (const Operand operand : roles_.read()) {
      const OperandStep& mine = step.operand[Index(operand)];
      if (!mine.enter) continue;
      const double seconds = TransferSeconds(step, operand);
      if (seconds == 0.0) continue;  // the operand is a tile already
      busy_.fetch_seconds += seconds;
      last = engines_.Fetch(CopyOf(step, operand, seconds, Free(step, operand)));
    }
    return last;
  }

  // Most steps transfer as much of an operand as the one before.
  double TransferSeconds(const Step& step, Operand operand) {
    const int i = Index(operand);
    const Dims moved = TransferredOf(step.operand[i]);
    auto& [known, seconds] = last_[i];
    if (moved == known) return seconds;
    known = moved;
    const Load load = LoadOf(moved, steps_[i]);
    seconds = roles_.Writes(operand) ? rates_.DrainSeconds(operand, load.elements, load.rows)
                                     : rates_.FetchSeconds(operand, load.elements, load.rows);
    return seconds;
  }

  // Of so many seconds, after that computation.
  [[nodiscard]] Engines::Copy CopyOf(const Step& step, Operand operand, double seconds,
                                     int64_t computation) const {
    const double before = rates_.Inside(operand) ? seconds : rates_.CopySeconds();
    return {step.number, before, std::max(seconds - before, 0.0), computation};
  }

  void Move(const Step& step) {
    for (const Operand operand : roles_.used()) {
      const OperandStep& mine = step.operand[Index(operand)];
      if (!mine.enter || mine.from_slot < 0) continue;
      Engines::Computation move;
      move.step = step.number;
      move.seconds = rates_.MoveSeconds(operand, MovedOf(mine));
      if (move.seconds == 0.0) continue;
      busy_.compute_seconds += move.seconds;
      free_[Index(operand)][static_cast<size_t>(mine.from_slot)] = engines_.Compute(move);
    }
  }

  const Roles& roles_;
  const Tiling& tiling_;
  const Rates& rates_;
  TileSeconds usual_, short_;
  std::array<MemoryOrder::Steps, kOperands> steps_{};
  Engines engines_;
  struct Transfer {
    Dims moved{-1};  // as much of no operand
    double seconds = 0.0;
  };
  std::array<Transfer, kOperands> last_{};
  // The piece after whose end each slot is free: a computation, of what is written a drain.
  std::array<std::vector<int64_t>, kOperands> free_;
  Cost busy_;
};

// Shared engines have done nothing else while they did a piece.
void InTurn(std::vector<Interval>* timeline) {
  double now = 0.0;
  for (Interval& one : *timeline) {
    const double seconds = one.end - one.begin;
    one.begin = now;
    one.end = now += seconds;
  }
}

double Busiest(const Cost& cost) {
  return std::max({cost.fetch_seconds, cost.compute_seconds, cost.drain_seconds});
}

// The pipeline's length from a walk that ended before the schedule did: what is left keeps its
// busiest engine as busy as the second half of the walk did. `unmet`: a drain, where the walk met
// none; the last of them comes after all else.
double Extrapolate(const Cost& total, const Cost& half, const Cost& end, double unmet) {
  const auto left = [](const Cost& from, const Cost& to) {
    Cost rest;
    rest.fetch_seconds = std::max(to.fetch_seconds - from.fetch_seconds, 0.0);
    rest.compute_seconds = std::max(to.compute_seconds - from.compute_seconds, 0.0);
    rest.drain_seconds = std::max(to.drain_seconds - from.drain_seconds, 0.0);
    return rest;
  };
  const double busy = Busiest(left(half, end));
  const double stretch = busy > 0.0 ? std::max((end.seconds - half.seconds) / busy, 1.0) : 1.0;
  const Cost rest = left(end, total);
  return end.seconds +
         std::max(Busiest(rest) * stretch,
                  std::max(rest.fetch_seconds, rest.compute_seconds) * stretch + unmet);
}

// `least`: the longer of `total` and WireBound.
double Length(const PlanRequest& request, const Candidate& candidate, const Rates& rates,
              const Totals& totals, const Cost& total, double least) {
  Schedule schedule(request.problem, candidate.tiling, candidate.order, candidate.depths);
  const int64_t steps = std::min(schedule.Steps(), kWalk);
  Pipeline pipeline(request, candidate, rates, steps);
  Cost half;
  for (int64_t i = 0; i < steps; ++i) {
    pipeline.Take(*schedule.Next());
    if (i + 1 == steps / 2) half = pipeline.busy();
  }
  pipeline.Run();
  half.seconds = pipeline.engines().EndOf(steps / 2);
  Cost end = pipeline.busy();
  end.seconds = pipeline.engines().EndOf(steps);
  if (steps == schedule.Steps()) return end.seconds;
  const Flow& drains = totals.flow[Index(request.problem.output())];
  const double unmet =
      end.drain_seconds > 0.0
          ? 0.0
          : drains.seconds / static_cast<double>(std::max<int64_t>(drains.transfers, 1));
  // What happens too rarely for the walk to have met it, the estimate knows of.
  return std::max(Extrapolate(total, half, end, unmet),
                  Estimate(rates, totals, total, least, candidate.depths, false));
}

bool Waits(const PlanRequest& request, const Candidate& candidate, const Totals& totals) {
  for (int i = 0; i < kOperands; ++i) {
    const bool moves = request.tiers[i] != Tier::kTile && totals.flow[i].transfers > 1;
    if (moves && candidate.depths[i] <= 1) return true;
  }
  return false;
}

}  // namespace

Cost PriceOf(const PlanRequest& request, const Candidate& candidate, const Rates& rates,
             const Cuts& cuts, double limit) {
  const Problem& problem = request.problem;
  Totals totals = TotalsOf(problem, rates, cuts, candidate.order, candidate.depths);
  if (candidate.tiling.tapered()) CountShort(problem, rates, candidate.tiling, &totals);
  Cost cost = CostOf(rates, totals);
  if (!rates.shared_engines()) {
    const double least = std::max(cost.seconds, WireBound(rates, totals));
    cost.seconds = least;
    if (least <= limit) {
      cost.seconds = std::max(least, Length(request, candidate, rates, totals, cost, least));
    }
    cost.waits = Waits(request, candidate, totals);
    cost.gaps = std::any_of(totals.flow.begin(), totals.flow.end(),
                            [](const Flow& flow) { return flow.rows > flow.transfers; });
  }
  cost.device_bytes = EstimateBytes(request, candidate);
  return cost;
}

Cost PriceOf(const PlanRequest& request, const Candidate& candidate, const Rates& rates,
             double limit) {
  if (candidate.tiling.Tiles() > 0) {
    const OwnedCuts owned(request.problem, candidate.tiling);
    return PriceOf(request, candidate, rates, owned.cuts, limit);
  }
  Cost cost;
  cost.device_bytes = EstimateBytes(request, candidate);
  return cost;
}

Cost PriceOf(const PlanRequest& request, const Candidate& candidate, const Profile& profile,
             double run_seconds) {
  if (candidate.pinned == Pinned{}) {
    return PriceOf(request, candidate, Rates(request, candidate.engine, profile, run_seconds));
  }
  const PlanRequest after = WithPinned(request, candidate);
  Cost cost = PriceOf(after, candidate, Rates(after, candidate.engine, profile, run_seconds));
  cost.seconds += PinSeconds(request, candidate.pinned, profile).value_or(0.0);
  return cost;
}

std::vector<Interval> TimelineOf(const PlanRequest& request, const Candidate& candidate,
                                 const Profile& profile, int64_t steps) {
  std::vector<Interval> timeline;
  if (candidate.tiling.Tiles() <= 0) return timeline;
  if (candidate.pinned != Pinned{}) {
    Candidate then = candidate;
    then.pinned = {};
    return TimelineOf(WithPinned(request, candidate), then, profile, steps);
  }
  const Rates rates(request, candidate.engine, profile);
  Schedule schedule(request.problem, candidate.tiling, candidate.order, candidate.depths);
  const int64_t first = steps / 2, last = schedule.Steps() - first;
  const int64_t walked = schedule.Steps() <= kDrawn ? schedule.Steps() : first;
  Pipeline pipeline(request, candidate, rates, walked);
  for (int64_t i = 0; i < walked; ++i) pipeline.Take(*schedule.Next());
  pipeline.Run();
  const auto hidden = [&](const auto& piece) { return piece.step >= first && piece.step < last; };
  const auto note = [&](Track track, const auto& pieces) {
    for (const auto& piece : pieces) {
      if (hidden(piece) && !rates.shared_engines()) continue;
      timeline.push_back({track, piece.step, piece.begin, piece.end});
    }
  };
  note(Track::kFetch, pipeline.engines().fetches());
  note(Track::kCompute, pipeline.engines().computations());
  note(Track::kDrain, pipeline.engines().drains());
  std::stable_sort(timeline.begin(), timeline.end(),
                   [](const Interval& a, const Interval& b) { return a.step < b.step; });
  if (rates.shared_engines()) {
    InTurn(&timeline);
    timeline.erase(std::remove_if(timeline.begin(), timeline.end(), hidden), timeline.end());
  }
  return timeline;
}

const char* Name(Track track) {
  constexpr const char* kNames[] = {"fetch", "compute", "drain"};
  return kNames[static_cast<size_t>(track)];
}

}  // namespace oocdnn
