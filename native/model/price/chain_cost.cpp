// The price of a chain's candidate: its tiles on three engines, by the rules of pipeline.cpp. In
// each step the links are computed one after the other; what they read of the caller's is fetched
// as they come to it.
#include "model/price/chain_cost.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.hpp"
#include "model/price/cuts.hpp"
#include "model/price/engines.hpp"
#include "model/price/rank.hpp"
#include "model/price/tapered.hpp"

namespace oocdnn {
namespace {

// The most steps that are simulated. Later steps take the mean time of the second half of these.
constexpr int64_t kWalk = 128;

// Of a tile that is read in one type and written in the other.
double RelaySeconds(const ConvShape& tile, const Problem& problem, Operand operand,
                    const Profile& profile) {
  auto bytes = static_cast<double>(SizeOf(problem.dtype) + SizeOf(AccumulatorOf(problem.dtype)));
  for (const int64_t extent : tile.DimsOf(operand, problem.direction)) {
    bytes *= static_cast<double>(extent);
  }
  return bytes / profile.move_bytes_per_second;
}

// The transfers of one operand of a link between the caller and a tile.
class Transfers {
 public:
  // `ring`: slots of x, which tells whether its tiles keep rows.
  Transfers(const ChainTiles& tiles, const Rates& rates, size_t link, Operand operand, bool drains,
            int ring = 1)
      : tiles_(tiles),
        rates_(rates),
        link_(link),
        ring_(ring),
        operand_(operand),
        drains_(drains),
        steps_(rates.memory().StepsOf(operand, CountsOf(tiles.tiling()))),
        element_bytes_(SizeOf(tiles.chain()[link].DTypeOf(operand))) {}

  struct One {
    double seconds = 0.0;
    int64_t bytes = 0;  // that cross the wire
  };
  [[nodiscard]] One At(int64_t number) const {
    const Load load = LoadOf(TransferredOf(tiles_.StepOf(link_, operand_, number, ring_)), steps_);
    const double seconds = drains_ ? rates_.DrainSeconds(operand_, load.elements, load.rows)
                                   : rates_.FetchSeconds(operand_, load.elements, load.rows);
    return {seconds, rates_.Inside(operand_) ? 0 : Mul(load.elements, element_bytes_)};
  }
  [[nodiscard]] Engines::Copy CopyOf(int64_t number, double seconds, int64_t computation) const {
    const double before = rates_.Inside(operand_) ? seconds : rates_.CopySeconds();
    return {number, before, std::max(seconds - before, 0.0), computation};
  }

 private:
  const ChainTiles& tiles_;
  const Rates& rates_;
  const size_t link_;
  const int ring_;
  const Operand operand_;
  const bool drains_;
  const MemoryOrder::Steps steps_;
  const int64_t element_bytes_;
};

// Of what the last link leaves for the caller: the result, and what it saves.
std::vector<Transfers> DrainsOf(const ChainTiles& tiles, const Rates& rates) {
  const Problem& last = tiles.chain().back();
  std::vector<Transfers> drains;
  for (const Operand operand : {last.output(), Operand::kSaved}) {
    if (!last.Writes(operand)) continue;
    drains.emplace_back(tiles, rates, tiles.chain().size() - 1, operand, true);
  }
  return drains;
}

double SecondsAt(const std::vector<Transfers>& transfers, int64_t number) {
  double seconds = 0.0;
  for (const Transfers& one : transfers) seconds += one.At(number).seconds;
  return seconds;
}

class ChainPipeline {
 public:
  // `fetches`, by link: whether it has a residual that comes with each tile.
  ChainPipeline(const ChainTiles& tiles, int ring, std::vector<const Rates*> rates,
                std::vector<bool> fetches, const ChainSeconds& seconds)
      : tiles_(tiles),
        rates_(std::move(rates)),
        fetches_(std::move(fetches)),
        seconds_(seconds),
        fetch_(tiles, first(), 0, Operand::kX, false, ring),
        drains_(DrainsOf(tiles, *rates_.back())),
        fetched_(static_cast<size_t>(ring), Engines::kNothing),
        drained_(static_cast<size_t>(ring), Engines::kNothing),
        added_(rates_.size(), fetched_) {}

  Cost Price() {
    const int64_t steps = tiles_.Steps(), walked = std::min(steps, kWalk);
    Engines engines(first().HopSeconds(), first().SpeedTogether());
    Cost half;
    for (int64_t number = 0; number < walked; ++number) {
      if (number == walked / 2) half = cost_;
      Take(number, &engines);
    }
    engines.Run();
    cost_.seconds = engines.EndOf(walked);
    half.seconds = engines.EndOf(walked / 2);
    Extrapolate(half, walked - walked / 2, steps - walked);
    cost_.steps = steps;
    if (first().shared_engines()) {
      cost_.seconds = cost_.fetch_seconds + cost_.compute_seconds + cost_.drain_seconds;
    }
    const auto links = static_cast<int64_t>(rates_.size());
    // An extrapolation may be a little short of the busiest engine.
    cost_.seconds = std::max({cost_.seconds, cost_.fetch_seconds, cost_.compute_seconds,
                              cost_.drain_seconds, first().HostSeconds(Mul(steps, links))});
    return cost_;
  }

 private:
  [[nodiscard]] const Rates& first() const { return *rates_.front(); }

  // Behind the first step links between the first and the last wait for nothing but each other, if
  // they have no residual of the caller's.
  void Take(int64_t number, Engines* engines) {
    const auto& seconds =
        tiles_.tiling().IsShort(tiles_.IndexOf(number)) ? seconds_.ends : seconds_.usual;
    const size_t last = rates_.size() - 1, slot = static_cast<size_t>(number) % fetched_.size();
    Engines::Computation inner{number};
    for (size_t i = 0; i <= last; ++i) {
      cost_.compute_seconds += seconds[i];
      if (number > 0 && i > 0 && i < last && !fetches_[i]) {
        inner.seconds += seconds[i];
        continue;
      }
      if (inner.seconds > 0.0) engines->Compute(std::exchange(inner, {number}));
      Engines::Computation run{number, seconds[i]};
      run.fetch = Fetch(i, number, engines);
      if (i == last) run.drain = drained_[slot];
      const int64_t computed = engines->Compute(run);
      if (i == 0) fetched_[slot] = computed;
      added_[i][slot] = computed;
      if (i == last) Drain(number, computed, engines);
    }
  }

  // The last of a link's fetches: of x and the residual, and in the first step of what stays.
  int64_t Fetch(size_t link, int64_t number, Engines* engines) {
    int64_t last = Engines::kNothing;
    const size_t slot = static_cast<size_t>(number) % fetched_.size();
    if (link == 0) FetchFrom(fetch_, number, fetched_[slot], engines, &last);
    if (fetches_[link]) {
      const Transfers flow(tiles_, *rates_[link], link, Operand::kResidual, false);
      FetchFrom(flow, number, added_[link][slot], engines, &last);
    }
    for (int o = 0; o < kOperands && number == 0; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (Moves(tiles_.chain()[link], operand, Axis::kN)) continue;
      if (!tiles_.chain()[link].Reads(operand)) continue;
      const Transfers flow(tiles_, *rates_[link], link, operand, false);
      FetchFrom(flow, number, Engines::kNothing, engines, &last);
    }
    return last;
  }

  void FetchFrom(const Transfers& flow, int64_t number, int64_t free, Engines* engines,
                 int64_t* last) {
    const Transfers::One transfer = flow.At(number);
    cost_.fetch_seconds += transfer.seconds;
    cost_.bytes_in += transfer.bytes;
    if (transfer.seconds == 0.0) return;  // it is a tile already
    *last = engines->Fetch(flow.CopyOf(number, transfer.seconds, free));
  }

  void Drain(int64_t number, int64_t computed, Engines* engines) {
    for (const Transfers& drain : drains_) {
      const Transfers::One transfer = drain.At(number);
      cost_.drain_seconds += transfer.seconds;
      cost_.bytes_out += transfer.bytes;
      if (transfer.seconds == 0.0) continue;
      drained_[static_cast<size_t>(number) % drained_.size()] =
          engines->Drain(drain.CopyOf(number, transfer.seconds, computed));
    }
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

  const ChainTiles& tiles_;
  const std::vector<const Rates*> rates_;  // by link
  const std::vector<bool> fetches_;
  const ChainSeconds& seconds_;
  const Transfers fetch_;
  const std::vector<Transfers> drains_;
  // By slot of x the computation after which it is free, and of the last result the drain.
  std::vector<int64_t> fetched_, drained_;
  std::vector<std::vector<int64_t>> added_;  // by link and slot of its residual, as of x
  Cost cost_;
};

// A tile in the middle of every axis.
int64_t MiddleOf(const Tiling& tiling) {
  int64_t number = 0;
  for (int a = 0; a < kAxes; ++a) {
    const int64_t count = tiling.Count(static_cast<Axis>(a));
    number = number * count + count / 2;
  }
  return number;
}

// By link.
std::vector<bool> FetchesOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                            const ChainTiles& tiles) {
  std::vector<bool> fetches(request.program.size());
  for (size_t i = 0; i < fetches.size(); ++i) {
    fetches[i] = ResidualOf(request, candidate, tiles, i) == Residual::kFetched;
  }
  return fetches;
}

double SumOf(const std::vector<double>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

}  // namespace

ChainPrices::ChainPrices(const ProgramRequest& request, std::shared_ptr<ChainHalos> halos,
                         const Profile& profile)
    : request_(request), halos_(std::move(halos)), profile_(profile) {
  for (const PlanRequest& link : request.nodes) {
    auto& rates = rates_.emplace_back();
    for (size_t e = 0; e < link.engines.size(); ++e) {
      rates.emplace_back();
      if (!link.engines[e].name.empty()) rates.back().emplace(link, static_cast<int>(e), profile);
    }
  }
}

ChainTiles ChainPrices::TilesOf(const ProgramCandidate& candidate) const {
  return oocdnn::TilesOf(request_, candidate, halos_);
}

const Rates& ChainPrices::RatesOf(size_t link, int engine) const {
  return *rates_[link][static_cast<size_t>(engine)];
}

// What is given to other links decides nothing here.
std::vector<int> ChainPrices::Fastest(const Tiling& tiling, bool sweeps) const {
  const std::array<ChainTiles, 2> tiles = {
      ChainTiles(halos_, tiling, std::vector<bool>(rates_.size(), false), sweeps),
      ChainTiles(halos_, tiling, std::vector<bool>(rates_.size(), true), sweeps)};
  std::vector<int> chosen(rates_.size(), -1);
  for (size_t i = 0; i < rates_.size(); ++i) {
    const std::array<ConvShape, 2> shapes = {tiles[0].ShapeOf(i, false),
                                             tiles[1].ShapeOf(i, false)};
    double best = kNever;
    for (size_t e = 0; e < rates_[i].size(); ++e) {
      if (!rates_[i][e]) continue;
      const bool pads = request_.nodes[i].engines[e].symmetric_padding;
      const double seconds = rates_[i][e]->RunSeconds(shapes[pads ? 1 : 0], {});
      if (chosen[i] >= 0 && seconds * kEngineGain >= best) continue;
      best = seconds;
      chosen[i] = static_cast<int>(e);
    }
  }
  return chosen;
}

double ChainPrices::SecondsOf(const ProgramCandidate& candidate, size_t link,
                              const ChainTiles& tiles, bool is_short) const {
  const int engine = candidate.engine[link];
  const Problem& problem = request_.program[link];
  const Rates& rates = RatesOf(link, engine);
  const ConvShape tile = tiles.ShapeOf(link, is_short);
  const double run = is_short ? rates.ShortRunSeconds(tile, tiles.ShapeOf(link, false), {})
                              : rates.RunSeconds(tile, {});
  const bool relays = link > 0 && Relays(request_.nodes[link], engine);
  const bool copies = ResidualOf(request_, candidate, tiles, link) == Residual::kCopied;
  const double relay = relays ? RelaySeconds(tile, problem, Operand::kX, profile_) : 0.0;
  const double copy = copies ? RelaySeconds(tile, problem, Operand::kY, profile_) : 0.0;
  const std::optional<ConvShape> kept = tiles.KeptOf(link, is_short);
  double keep = kept ? RelaySeconds(*kept, problem, Operand::kX, profile_) : 0.0;
  if (link > 0) keep *= 2.0;  // to where it is kept, and from there
  return relay + copy + keep + run + rates.FinishSeconds(tile);
}

ChainSeconds ChainPrices::SecondsOf(const ProgramCandidate& candidate,
                                    const ChainTiles& tiles) const {
  ChainSeconds seconds;
  for (size_t i = 0; i < rates_.size(); ++i) {
    seconds.usual.push_back(SecondsOf(candidate, i, tiles, false));
    if (!candidate.tiling.tapered()) continue;
    seconds.ends.push_back(SecondsOf(candidate, i, tiles, true));
  }
  return seconds;
}

// Each engine's busy time from its first, middle and last tile; and both ends.
double ChainPrices::Guess(const ProgramCandidate& candidate, const ChainTiles& tiles) const {
  const ChainSeconds seconds = SecondsOf(candidate, tiles);
  const int64_t steps = tiles.Steps(), ends = candidate.tiling.ShortTiles();
  const double compute = SumOf(seconds.usual) * static_cast<double>(steps - ends) +
                         SumOf(seconds.ends) * static_cast<double>(ends);
  const size_t last = rates_.size() - 1;
  const Rates& rates = RatesOf(last, candidate.engine[last]);
  const Transfers fetch(tiles, RatesOf(0, candidate.engine[0]), 0, Operand::kX, false,
                        candidate.ring);
  const std::vector<Transfers> drain = DrainsOf(tiles, rates);
  const int64_t middle = MiddleOf(tiles.tiling());
  const double usual = static_cast<double>(steps - ends) + 0.5 * static_cast<double>(ends);
  const double first = fetch.At(0).seconds, end = SecondsAt(drain, steps - 1);
  double fetches = usual * fetch.At(middle).seconds;
  const std::vector<bool> residuals = FetchesOf(request_, candidate, tiles);
  for (size_t i = 0; i < residuals.size(); ++i) {
    if (!residuals[i]) continue;
    const Transfers residual(tiles, RatesOf(i, candidate.engine[i]), i, Operand::kResidual, false);
    fetches += usual * residual.At(middle).seconds;
  }
  const double drains = usual * SecondsAt(drain, middle);
  const double host = rates.HostSeconds(Mul(steps, static_cast<int64_t>(rates_.size())));
  if (candidate.ring == 1 || rates.shared_engines()) {
    return std::max(compute + fetches + drains, host);
  }
  return std::max({compute + first + end, fetches + end, first + drains, host});
}

Cost ChainPrices::Price(const ProgramCandidate& candidate) const {
  const ChainTiles tiles = TilesOf(candidate);
  const ChainSeconds seconds = SecondsOf(candidate, tiles);
  std::vector<const Rates*> rates(rates_.size());
  for (size_t i = 0; i < rates.size(); ++i) rates[i] = &RatesOf(i, candidate.engine[i]);
  Cost cost = ChainPipeline(tiles, candidate.ring, std::move(rates),
                            FetchesOf(request_, candidate, tiles), seconds)
                  .Price();
  cost.device_bytes = ChainBytes(request_, candidate, tiles);
  return cost;  // NOLINT(clang-analyzer-core.StackAddressEscape): a Cost holds no address
}

}  // namespace oocdnn
