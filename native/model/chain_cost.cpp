// The price of a chain's candidate: its tiles on three engines, by the rules of pipeline.cpp. In
// each step the links are computed one after the other; what they read of the caller's is fetched
// as they come to it.
#include <algorithm>

#include "base/checked.hpp"
#include "model/chain_plan.hpp"
#include "model/cost.hpp"
#include "model/cuts.hpp"
#include "model/engines.hpp"
#include "model/tapered.hpp"

namespace oocdnn {
namespace {

// Steps that are walked; those behind them are taken to be as the second half of these.
constexpr int64_t kWalk = 128;

class ChainPipeline {
 public:
  ChainPipeline(const ChainRequest& request, const ChainCandidate& candidate,
                const Profile& profile)
      : request_(request), tiles_(TilesOf(request, candidate)), ring_(candidate.ring) {
    for (size_t i = 0; i < request.links.size(); ++i) {
      rates_.emplace_back(request.links[i], candidate.engine[i], profile);
      const auto seconds = [&](bool is_short) {
        const double relay =
            i > 0 && Relays(request.links[i], candidate.engine[i])
                ? RelaySeconds(tiles_.ShapeOf(i, is_short), request.chain[i], profile)
                : 0.0;
        return relay + SecondsOf(i, is_short);
      };
      usual_.push_back(seconds(false));
      short_.push_back(tiles_.tiling().tapered() ? seconds(true) : 0.0);
    }
    fetched_.resize(static_cast<size_t>(ring_), Engines::kNothing);
    drained_.resize(static_cast<size_t>(ring_), Engines::kNothing);
  }

  Cost Price() {
    const int64_t steps = tiles_.Steps(), walked = std::min(steps, kWalk);
    Engines engines(rates_.front().HopSeconds(), rates_.front().SpeedTogether());
    Cost half;
    for (int64_t number = 0; number < walked; ++number) {
      if (number == walked / 2) half = cost_;
      tiles_.StepOf(number, ring_, &steps_);
      Take(&engines);
    }
    engines.Run();
    cost_.seconds = engines.EndOf(walked);
    half.seconds = engines.EndOf(walked / 2);
    Extrapolate(half, walked - walked / 2, steps - walked);
    cost_.steps = steps;
    if (rates_.front().shared_engines()) {
      cost_.seconds = cost_.fetch_seconds + cost_.compute_seconds + cost_.drain_seconds;
    }
    const auto links = static_cast<int64_t>(rates_.size());
    cost_.seconds = std::max(cost_.seconds, rates_.front().HostSeconds(Mul(steps, links)));
    return cost_;
  }

 private:
  static double RelaySeconds(const ConvShape& tile, const Problem& problem,
                             const Profile& profile) {
    double bytes =
        static_cast<double>(SizeOf(problem.dtype) + SizeOf(AccumulatorOf(problem.dtype)));
    for (const int64_t extent : tile.DimsOf(Operand::kX, problem.direction)) {
      bytes *= static_cast<double>(extent);
    }
    return bytes / profile.move_bytes_per_second;
  }

  [[nodiscard]] double SecondsOf(size_t link, bool is_short) const {
    const ConvShape tile = tiles_.ShapeOf(link, is_short);
    const double run = is_short ? rates_[link].ShortRunSeconds(tile, tiles_.ShapeOf(link, false))
                                : rates_[link].RunSeconds(tile);
    return run + rates_[link].FinishSeconds(tile);
  }

  void Take(Engines* engines) {
    for (size_t i = 0; i < rates_.size(); ++i) {
      const Step& step = steps_[i];
      const bool is_short = tiles_.tiling().IsShort(step.index);
      Engines::Computation run;
      run.step = step.number;
      run.fetch = Fetch(i, engines);
      run.seconds = is_short ? short_[i] : usual_[i];
      const bool last = i + 1 == rates_.size();
      const auto slot = static_cast<size_t>(step.number % ring_);
      if (last) run.drain = drained_[slot];
      cost_.compute_seconds += run.seconds;
      const int64_t computed = engines->Compute(run);
      if (i == 0) fetched_[slot] = computed;
      if (last) Drain(i, computed, engines);
    }
  }

  // The seconds of a transfer, whose bytes are counted.
  double Count(size_t link, Operand operand, bool drains, double* busy, int64_t* bytes) {
    const OperandStep& mine = steps_[link].operand[Index(operand)];
    const Rates& rates = rates_[link];
    const Load load = LoadOf(mine, rates.memory().StepsOf(operand, CountsOf(tiles_.tiling())));
    const double seconds = drains ? rates.DrainSeconds(operand, load.elements, load.rows)
                                  : rates.FetchSeconds(operand, load.elements, load.rows);
    *busy += seconds;
    if (!rates.Inside(operand)) {
      *bytes += Mul(load.elements, SizeOf(request_.chain[link].DTypeOf(operand)));
    }
    return seconds;
  }

  [[nodiscard]] Engines::Copy CopyOf(size_t link, Operand operand, double seconds,
                                     int64_t computation) const {
    const Rates& rates = rates_[link];
    const double before = rates.Inside(operand) ? seconds : rates.CopySeconds();
    return {steps_[link].number, before, std::max(seconds - before, 0.0), computation};
  }

  // The last of a link's fetches.
  int64_t Fetch(size_t link, Engines* engines) {
    int64_t last = Engines::kNothing;
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      const OperandStep& mine = steps_[link].operand[o];
      const bool inner = IsInner(request_.chain, link, operand);
      if (!request_.chain[link].Reads(operand) || inner || !mine.enter) continue;
      const double seconds = Count(link, operand, false, &cost_.fetch_seconds, &cost_.bytes_in);
      if (seconds == 0.0) continue;  // it is a tile already
      const bool moves = operand == Operand::kX;
      const int64_t free = moves ? fetched_[static_cast<size_t>(mine.slot)] : Engines::kNothing;
      last = engines->Fetch(CopyOf(link, operand, seconds, free));
    }
    return last;
  }

  void Drain(size_t link, int64_t computed, Engines* engines) {
    const Operand output = request_.chain[link].output();
    const double seconds = Count(link, output, true, &cost_.drain_seconds, &cost_.bytes_out);
    if (seconds == 0.0) return;
    drained_[static_cast<size_t>(steps_[link].number % ring_)] =
        engines->Drain(CopyOf(link, output, seconds, computed));
  }

  void Extrapolate(const Cost& half, int64_t walked, int64_t left) {
    const double share =
        static_cast<double>(left) / static_cast<double>(std::max<int64_t>(walked, 1));
    const auto extend = [&](auto Cost::* field) {
      const auto more = static_cast<double>(cost_.*field - half.*field) * share;
      cost_.*field += static_cast<std::decay_t<decltype(cost_.*field)>>(more);
    };
    for (const auto field :
         {&Cost::seconds, &Cost::fetch_seconds, &Cost::compute_seconds, &Cost::drain_seconds}) {
      extend(field);
    }
    for (const auto field : {&Cost::bytes_in, &Cost::bytes_out}) extend(field);
  }

  const ChainRequest& request_;
  const ChainTiles tiles_;
  const int ring_;
  std::vector<Rates> rates_;
  std::vector<double> usual_, short_;  // seconds of a link
  // By slot of x the computation after which it is free, and of the last result the drain.
  std::vector<int64_t> fetched_, drained_;
  std::vector<Step> steps_;
  Cost cost_;
};

}  // namespace

Cost PriceOf(const ChainRequest& request, const ChainCandidate& candidate, const Profile& profile) {
  Cost cost = ChainPipeline(request, candidate, profile).Price();
  cost.device_bytes = EstimateBytes(request, candidate);
  return cost;
}

}  // namespace oocdnn
