// Times and totals. The pipeline itself is in pipeline.cpp.
#include "model/price/cost.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "model/price/footprint.hpp"

namespace oocdnn {
namespace {

constexpr RowCount kNoRows{0, 0};
// Of copies whose bounce memory kernels fill and empty, and of the convolutions beside those: both
// are measured alone, and hold each other up, by as much in calls on an H200.
constexpr double kBounceLoss = 1.15, kBesideBounceLoss = 1.15;
// Inside the device the elements of broken rows are copied one by one, which takes as long as so
// many bytes of each (docs/results/h200/in_core.txt).
constexpr double kBroken = 5;

// Tiles that the finishing pass touches: it reads the sum, writes it back where that is the output,
// and reads what is as large; another pass sums up what is written. Of what its engine finishes
// only windows are left to read.
int64_t FinishPasses(const Problem& problem, bool fuses) {
  const int64_t summing = problem.sums ? 1 : 0;
  if (fuses) return problem.pool.pools() && !problem.pool.Copies() ? 1 : 0;
  if (!problem.NeedsFinish()) return summing;
  return summing + 1 + (problem.Stays(problem.sum()) ? 0 : 1) +
         (problem.Uses(Operand::kOld) ? 1 : 0) + (problem.Uses(Operand::kResidual) ? 1 : 0);
}

// Whether y, or z where y is pooled, lies with its channels side by side.
bool ChannelsLast(const Problem& problem) {
  const Operand operand = problem.Has(Operand::kY) ? Operand::kY : Operand::kZ;
  const Dims& stride = problem.stride[Index(operand)];
  const Dims dims = problem.DimsOf(operand);
  const int fastest = dims[5] > 1 ? 5 : 4;
  return dims[2] > 1 && stride[2] < stride[fastest];
}

double Elements(const ConvShape& tile, Operand operand, Direction direction) {
  double product = 1.0;
  for (const int64_t extent : tile.DimsOf(operand, direction)) {
    product *= static_cast<double>(extent);
  }
  return product;
}

// Of tiles in the problem's type, and of sums.
std::array<Arithmetic, 2> ArithmeticsOf(const PlanRequest& request, int engine,
                                        const Profile& profile, Direction direction) {
  const std::string& name = request.engines[static_cast<size_t>(engine)].name;
  const auto of = [&](bool sums) {
    return profile.ArithmeticOf(name, request.problem, direction, sums);
  };
  return {of(false), of(true)};
}

}  // namespace

Rates::Rates(const PlanRequest& request, int engine, const Profile& profile, double run_seconds)
    : problem_(request.problem),
      roles_(request.problem),
      tiers_(request.tiers),
      profile_(profile),
      memory_(request.problem),
      wire_(profile.Wire(request.engines[static_cast<size_t>(engine)].name,
                         ChannelsLast(request.problem))),
      page_(profile.StagingOf(kPagePlace)),
      file_(profile.StagingOf(kFilePlace)),
      reorders_(request.engines[static_cast<size_t>(engine)].channels_last !=
                ChannelsLast(request.problem)),
      bounce_bytes_(request.bounce_bytes),
      element_bytes_(SizeOf(request.problem.dtype)),
      fuses_(Fuses(request, engine)),
      finish_passes_(FinishPasses(request.problem, fuses_)),
      tile_bytes_(SizeOf(AccumulatorOf(request.problem.dtype))),
      channels_at_once_(request.engines[static_cast<size_t>(engine)].channels_at_once),
      arithmetic_(ArithmeticsOf(request, engine, profile, request.problem.direction)),
      filter_arithmetic_(request.problem.also.dw
                             ? ArithmeticsOf(request, engine, profile, Direction::kBackwardFilter)
                             : arithmetic_),
      run_seconds_(run_seconds) {
  LimitBoth();
  if (Bounces()) SlowByBounces();
  speed_together_ = SpeedOfBoth();
}

void Rates::SlowByBounces() {
  for (double* rate : {&wire_.fetch, &wire_.drain, &wire_.both}) *rate /= kBounceLoss;
  for (Arithmetic& arithmetic : arithmetic_) arithmetic.Scale(kBesideBounceLoss);
  beside_copies_ = kBesideBounceLoss;
  run_seconds_ *= kBesideBounceLoss;
}

double Rates::CrossingRate(Operand operand, bool drains) const {
  const double wire = drains ? wire_.drain : wire_.fetch;
  const Tier tier = tiers_[Index(operand)];
  if (tier != Tier::kPageable && tier != Tier::kFile) return wire;
  const StagingRates& staging = tier == Tier::kFile ? file_ : page_;
  return std::min(wire, drains ? staging.drain : staging.fetch);
}

void Rates::LimitBoth() {
  for (const auto& [tier, both] :
       {std::pair{Tier::kPageable, page_.both}, std::pair{Tier::kFile, file_.both}}) {
    const auto is_there = [this, tier = tier](Operand operand) {
      return tiers_[Index(operand)] == tier;
    };
    if (std::any_of(roles_.read().begin(), roles_.read().end(), is_there) &&
        std::any_of(roles_.written().begin(), roles_.written().end(), is_there)) {
      wire_.both = std::min(wire_.both, both);
    }
  }
}

double Rates::FetchSeconds(Operand operand, int64_t elements, const RowCount& rows) const {
  return TransferSeconds(operand, false, wire_.fetch_rows, elements, rows);
}

double Rates::MoveSeconds(Operand operand, int64_t elements) const {
  if (tiers_[Index(operand)] == Tier::kTile) return 0.0;
  const double bytes = static_cast<double>(elements) * static_cast<double>(tile_bytes_);
  return bytes / profile_.move_bytes_per_second;
}

double Rates::DrainSeconds(Operand operand, int64_t elements, const RowCount& rows) const {
  return TransferSeconds(operand, true, wire_.drain_rows, elements, rows);
}

double Rates::TransferSeconds(Operand operand, bool drains, const RowBytes& on_top,
                              int64_t elements, const RowCount& rows) const {
  const int64_t size = SizeOf(problem_.DTypeOf(operand));
  const double bytes = static_cast<double>(elements) * static_cast<double>(size);
  const auto far = static_cast<double>(rows.far), near = static_cast<double>(rows.all) - far;
  if (tiers_[Index(operand)] == Tier::kTile) return 0.0;
  if (CrossesWire(tiers_[Index(operand)])) {
    const double on_wire = bytes + near * on_top.near + far * on_top.far;
    return profile_.copy_seconds + on_wire / CrossingRate(operand, drains);
  }
  const double moved =
      rows.broken ? std::max(bytes, static_cast<double>(elements) * kBroken) : bytes;
  return profile_.copy_seconds + (moved + (near + far) * wire_.inside_row_bytes) / wire_.inside;
}

// Backward data gathers every row of dx: of a tile that holds rows of other tiles, those too, and
// of one that is padded none for the rows of dy that reach beyond it.
ConvShape Rates::ChargedFor(const ConvShape& tile) const {
  ConvShape charged = tile;
  for (int s = 0; s < 3 && problem_.direction == Direction::kBackwardData; ++s) {
    charged.out[s] = CeilDiv(tile.in[s], tile.stride[s]);
  }
  if (problem_.direction != Direction::kBackwardBias) {  // which is computed in no blocks
    charged.k = std::min(RoundUp(tile.k, channels_at_once_), problem_.shape.k);
    charged.c = std::min(RoundUp(tile.c, channels_at_once_), problem_.shape.c);
  }
  return charged;
}

TileSize Rates::TileSizeOf(const ConvShape& tile) const { return SizeOfCharged(ChargedFor(tile)); }

TileSize Rates::SizeOfCharged(const ConvShape& charged) const {
  const double outputs = Elements(charged, Operand::kY, problem_.direction);
  return {std::min(charged.k, charged.c), static_cast<int64_t>(outputs)};
}

double Rates::OperationsOf(const ConvShape& tile) const {
  return ChargedFor(tile).Operations(problem_.direction);
}

double Rates::RunSeconds(const ConvShape& tile, Partial partial) const {
  return (run_seconds_ > 0.0 ? run_seconds_ : PredictedSeconds(tile, partial)) + AgainSeconds(tile);
}

double Rates::ShortRunSeconds(const ConvShape& tile, const ConvShape& usual,
                              Partial partial) const {
  const double runs = RunSeconds(usual, partial) - AgainSeconds(usual);
  const double share = PredictedSeconds(tile, partial) / PredictedSeconds(usual, partial);
  return runs * share + AgainSeconds(tile);
}

bool Rates::Sums(bool partial) const {
  return OutTypeOf(problem_, partial, fuses_) != problem_.dtype;
}

Partial Rates::PartialOf(const AxisArray& counts) const {
  if (!Sums(true)) return {};
  return {CutsReduction(problem_, counts, problem_.sum()),
          problem_.also.dw && CutsReduction(problem_, counts, Operand::kDw)};
}

double Rates::AgainSeconds(const ConvShape& tile) const {
  const bool again = problem_.also.db && problem_.direction == Direction::kBackwardData;
  return again ? PoolBackwardSeconds(tile) : 0.0;
}

// A convolution of the tile's own size, of which no row is charged twice; db reads its dy once.
double Rates::AlongSeconds(const ConvShape& tile, double filter_operation) const {
  double seconds = 0.0;
  if (problem_.also.dw) {
    const double computing = tile.Operations(Direction::kBackwardFilter) * filter_operation;
    seconds += profile_.run_seconds + std::max(computing, PassSeconds(tile));
  }
  if (problem_.also.db) {
    const double reading =
        Elements(tile, Operand::kY, problem_.direction) * static_cast<double>(element_bytes_);
    seconds += profile_.run_seconds + reading / (2 * profile_.move_bytes_per_second);
  }
  return seconds;
}

double Rates::FilterOperation(const ConvShape& tile, Partial partial) const {
  return filter_arithmetic_[Sums(partial.dw) ? 1 : 0].Seconds(
      std::min(tile.k, tile.c), Elements(tile, Operand::kY, Direction::kBackwardFilter));
}

double Rates::PredictedSeconds(const ConvShape& tile, Partial partial) const {
  return OwnSeconds(tile, partial) +
         AlongSeconds(tile, beside_copies_ * FilterOperation(tile, partial));
}

double Rates::OwnOf(const ConvShape& tile, double seconds, Partial partial) const {
  constexpr double kLeastShare = 0.1;
  const double along = AlongSeconds(tile, FilterOperation(tile, partial));
  return std::max(seconds - along, kLeastShare * seconds);
}

double Rates::OwnSeconds(const ConvShape& tile, Partial partial) const {
  const ConvShape charged = ChargedFor(tile);
  const TileSize size = SizeOfCharged(charged);
  const double one = arithmetic_[Sums(partial.own) ? 1 : 0].Seconds(
      size.channels, static_cast<double>(size.outputs));
  const double operations = charged.Operations(problem_.direction);
  return profile_.run_seconds + std::max(operations * one, PassSeconds(tile));
}

double Rates::LeastOf(const std::array<Arithmetic, 2>& arithmetic, int64_t channels) {
  return std::min(arithmetic[0].LeastSeconds(channels), arithmetic[1].LeastSeconds(channels));
}

double Rates::LeastRunSeconds(const ConvShape& tile) const {
  const double computing = OperationsOf(tile) * LeastOf(arithmetic_, TileSizeOf(tile).channels);
  const double own = profile_.run_seconds + std::max(computing, PassSeconds(tile));
  const double filter = LeastOf(filter_arithmetic_, std::min(tile.k, tile.c));
  return own + AlongSeconds(tile, beside_copies_ * filter) + AgainSeconds(tile);
}

// The rate of moves counts bytes that are read and written.
double Rates::PassSeconds(const ConvShape& tile) const {
  double elements = 0.0;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    if (problem_.Uses(operand)) elements += Elements(tile, operand, problem_.direction);
  }
  return elements * static_cast<double>(element_bytes_) / (2 * profile_.move_bytes_per_second);
}

double Rates::UndisturbedSeconds(const ConvShape& tile, double seconds, Partial partial) const {
  const double filter = FilterOperation(tile, partial);
  const double own = seconds - AlongSeconds(tile, beside_copies_ * filter);
  const double arithmetic = std::max(own - profile_.run_seconds, 0.0);
  return own - arithmetic + arithmetic / beside_copies_ + AlongSeconds(tile, filter);
}

double Rates::FinishSeconds(const ConvShape& tile) const {
  if (finish_passes_ == 0) return 0.0;
  double bytes = Elements(tile, problem_.sum(), problem_.direction) *
                 static_cast<double>((fuses_ ? element_bytes_ : tile_bytes_) * finish_passes_);
  for (const Operand made : {Operand::kZ, Operand::kSaved}) {
    if (!problem_.Writes(made)) continue;
    bytes += Elements(tile, made, problem_.direction) *
             static_cast<double>(SizeOf(problem_.DTypeOf(made)));
  }
  return bytes / (problem_.pool.Elements() > 1 ? wire_.pool : wire_.finish);
}

double Rates::PoolBackwardSeconds(const ConvShape& tile) const {
  if (!problem_.restores()) return 0.0;
  double bytes =
      Elements(tile, Operand::kY, problem_.direction) * static_cast<double>(element_bytes_);
  for (const Operand source : {Operand::kZ, Operand::kSaved}) {
    if (!problem_.Uses(source)) continue;
    bytes += Elements(tile, source, problem_.direction) *
             static_cast<double>(SizeOf(problem_.DTypeOf(source)));
  }
  return bytes / wire_.restore;
}

double Rates::NormalizeSeconds(const ConvShape& tile) const {
  if (!problem_.prologue.any()) return 0.0;
  const double elements = Elements(tile, problem_.source(), problem_.direction);
  return 2 * elements * static_cast<double>(tile_bytes_) / wire_.normalize;
}

double Rates::SpeedOfBoth() const {
  if (shared_engines()) return 1.0;
  const auto slowest = [this](const auto& operands, bool drains) {
    double rate = drains ? wire_.drain : wire_.fetch;
    for (const Operand operand : operands) rate = std::min(rate, CrossingRate(operand, drains));
    return rate;
  };
  const double alone = slowest(roles_.read(), false) + slowest(roles_.written(), true);
  return std::min(wire_.both / alone, 1.0);
}

double Rates::HostSeconds(int64_t steps) const {
  return static_cast<double>(steps) * profile_.step_seconds;
}

double Rates::ExposedSeconds(Operand operand, int64_t bytes, int64_t transfers) const {
  const bool alike =  // tiles that lie as the caller's do
      operand == Operand::kZ || operand == Operand::kSaved || IsTable(operand);
  if (!Bounces() || transfers == 0 || Inside(operand) || alike) return 0.0;
  const double one = static_cast<double>(bytes) / static_cast<double>(transfers);
  const double beyond = std::max(one - static_cast<double>(bounce_bytes_), 0.0);
  const double rate = CrossingRate(operand, roles_.Writes(operand));
  // Nothing is computed before the first fetch, or after the last.
  return beyond * static_cast<double>(transfers - 1) / rate;
}

Flow FlowOf(const Problem& problem, const Rates& rates, const Cuts& cuts, const LoopOrder& order,
            const MemoryOrder::Steps& steps, Operand operand, int depth) {
  const OperandTraffic traffic = TrafficOf(problem, cuts, order, steps, operand, depth);
  Flow flow;
  flow.varies = traffic.varies;
  if (rates.roles().Stays(operand)) {
    const double one = rates.PoolBackwardSeconds(ShapeOf(problem, cuts));
    flow.move_seconds = one * static_cast<double>(traffic.transfers);
    return flow;
  }
  flow.transfers = traffic.transfers;
  flow.rows = rates.Inside(operand) ? 0 : traffic.rows.all;
  flow.bytes = rates.Inside(operand) ? 0 : Mul(traffic.elements, SizeOf(problem.DTypeOf(operand)));
  // Fixed costs come once per transfer, the rest once in all.
  const bool drains = rates.roles().Writes(operand);
  const double fixed =
      drains ? rates.DrainSeconds(operand, 0, kNoRows) : rates.FetchSeconds(operand, 0, kNoRows);
  const double all = drains ? rates.DrainSeconds(operand, traffic.elements, traffic.rows)
                            : rates.FetchSeconds(operand, traffic.elements, traffic.rows);
  flow.seconds = all + fixed * static_cast<double>(traffic.transfers - 1);
  flow.move_seconds = rates.MoveSeconds(operand, traffic.moved);
  if (problem.prologue.any() && operand == problem.source()) {
    const double one = rates.NormalizeSeconds(ShapeOf(problem, cuts));
    flow.move_seconds += one * static_cast<double>(traffic.transfers);
  }
  flow.exposed = rates.ExposedSeconds(operand, flow.bytes, flow.transfers);
  if (flow.transfers > 0) {  // the average will do
    flow.end_seconds = flow.seconds / static_cast<double>(flow.transfers);
    flow.end_bytes = static_cast<double>(flow.bytes) / static_cast<double>(flow.transfers);
  }
  return flow;
}

double ComputeSeconds(const Problem& problem, const Rates& rates, const Cuts& cuts,
                      const ConvShape& tile) {
  const AxisArray counts = CountsOf(cuts);
  const auto outputs = static_cast<double>(BoxesOf(problem, counts, rates.roles().output()));
  const double run = rates.RunSeconds(tile, rates.PartialOf(counts));
  return static_cast<double>(StepsOf(cuts)) * run + outputs * rates.FinishSeconds(tile);
}

Totals TotalsOf(const Problem& problem, const Rates& rates, const Cuts& cuts,
                const LoopOrder& order, const Depths& depths) {
  Totals totals;
  totals.steps = StepsOf(cuts);
  totals.compute_seconds = ComputeSeconds(problem, rates, cuts, ShapeOf(problem, cuts));
  const AxisArray counts = CountsOf(cuts);
  for (const Operand operand : rates.roles().used()) {
    const int i = Index(operand);
    const MemoryOrder::Steps steps = rates.memory().StepsOf(operand, counts);
    totals.flow[i] = FlowOf(problem, rates, cuts, order, steps, operand, std::max(depths[i], 1));
  }
  return totals;
}

Cost CostOf(const Rates& rates, const Totals& totals) {
  Cost cost;
  cost.steps = totals.steps;
  cost.compute_seconds = totals.compute_seconds;
  double inside = 0.0, fetch_exposed = 0.0, drain_exposed = 0.0;
  for (const Operand operand : rates.roles().used()) {
    const Flow& flow = totals.flow[Index(operand)];
    if (rates.Inside(operand)) inside += flow.seconds;
    cost.compute_seconds += flow.move_seconds;
    if (rates.roles().Writes(operand)) {
      cost.drain_seconds += flow.seconds;
      drain_exposed += flow.exposed;
      cost.bytes_out = Add(cost.bytes_out, flow.bytes);
    } else {
      cost.fetch_seconds += flow.seconds;
      fetch_exposed += flow.exposed;
      cost.bytes_in = Add(cost.bytes_in, flow.bytes);
    }
  }
  if (rates.shared_engines()) {
    cost.seconds = cost.fetch_seconds + cost.compute_seconds + cost.drain_seconds;
  } else {
    const double exposed = std::max(fetch_exposed, drain_exposed);
    const auto bytes = static_cast<double>(Add(cost.bytes_in, cost.bytes_out));
    cost.seconds =
        std::max({cost.fetch_seconds, cost.compute_seconds + inside + exposed, cost.drain_seconds,
                  rates.WireSeconds(bytes), rates.HostSeconds(cost.steps)});
  }
  return cost;
}

}  // namespace oocdnn
