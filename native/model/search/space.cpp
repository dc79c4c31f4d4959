#include "model/search/space.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "model/price/orders.hpp"

namespace oocdnn {
namespace {

AxisArray LengthsOf(const Cuts& cuts) {
  AxisArray lengths{};
  for (int i = 0; i < kAxes; ++i) lengths[i] = cuts[i]->length;
  return lengths;
}

std::vector<Operand> RingOperands(const Problem& problem) {
  std::vector<Operand> rings;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    if (problem.Has(operand)) rings.push_back(operand);
  }
  if (problem.output() == Operand::kBias) rings.push_back(Operand::kBias);
  if (problem.Uses(Operand::kZ)) rings.push_back(Operand::kZ);
  return rings;
}

// The shortest tile on the axis.
int64_t ShortestOf(const Problem& problem, Axis axis) {
  AxisArray lengths = ExtentsOf(problem);
  lengths[Index(axis)] = 1;
  return MakeTiling(problem, lengths, false).length[Index(axis)];
}

// Whether what is left to fetch where rows are rolled over may have fewer whole pieces of memory.
bool RollingBreaksRows(const Problem& problem, const Cuts& cuts, Operand operand) {
  return Rolls(problem, operand) && std::any_of(cuts.begin(), cuts.end(), [&](const AxisCut* cut) {
           const CutRows& rows = cut->rows[Index(operand)];
           return IsSpatial(cut->axis) && rows.rolled.partial > rows.valid.partial;
         });
}

}  // namespace

struct TileSpace::Slots {
  std::array<int64_t, kOperands> bytes{}, boxes{};
  std::array<MemoryOrder::Steps, kOperands> memory{};
  int64_t single = 0;  // one slot of each
  double compute_seconds = 0.0;
  int64_t steps = 0;
};

TileSpace::TileSpace(const PlanRequest& request, int engine, const Profile& profile)
    : request_(request),
      engine_(engine),
      padding_as_data_(!request.engines[static_cast<size_t>(engine)].symmetric_padding),
      footprint_(request.problem, request.engines[static_cast<size_t>(engine)]),
      rates_(request, engine, profile),
      floor_(FloorCost(request, rates_)),
      rings_(RingOperands(request.problem)) {
  for (int i = 0; i < kOperands; ++i) {
    for (int a = 0; a < kAxes; ++a) {
      moves_[i][a] = Moves(problem(), static_cast<Operand>(i), static_cast<Axis>(a));
    }
  }
}

const AxisCut* TileSpace::Cut(Axis axis, int64_t length) {
  auto& known = cuts_[Index(axis)];
  AxisArray lengths = ExtentsOf(problem());
  const int64_t whole = lengths[Index(axis)];
  if (request_.reproducible && length < whole) {
    length = std::min(RoundUp(length, SumUnit(problem(), axis)), whole);
  }
  const auto found = known.find(length);
  if (found != known.end()) return &found->second;
  lengths[Index(axis)] = length;
  const Tiling tiling = MakeTiling(problem(), lengths, padding_as_data_);
  return &known.emplace(length, CutOf(problem(), tiling, axis)).first->second;
}

Tiling TileSpace::TilingOf(const Cuts& cuts) const {
  return MakeTiling(problem(), LengthsOf(cuts), padding_as_data_);
}

Cuts TileSpace::CutsOf(const Tiling& tiling) {
  Cuts cuts{};
  for (int i = 0; i < kAxes; ++i) cuts[i] = Cut(static_cast<Axis>(i), tiling.length[i]);
  return cuts;
}

Candidate TileSpace::CandidateOf(const Point& point) const {
  return {TilingOf(point.cuts), point.order, point.depths, engine_};
}

bool TileSpace::Allowed(const Cuts& cuts) const {
  if (request_.cuts && cuts[Index(*request_.cuts)]->count <= 1) return false;
  return !request_.reproducible || KeepsSummationOrder(problem(), LengthsOf(cuts), CountsOf(cuts));
}

int64_t TileSpace::SingleBytes(const ConvShape& tile, bool partial) const {
  int64_t bytes = 0;
  for (const Operand operand : rates_.roles().used()) {
    bytes = Add(bytes, footprint_.SlotBytes(tile, operand, partial));
  }
  return bytes;
}

double TileSpace::LeastSeconds(int64_t steps) const {
  const double launches = static_cast<double>(steps - 1) * rates_.LaunchSeconds();
  if (rates_.shared_engines()) return floor_.seconds + launches;
  return std::max(rates_.HostSeconds(steps), floor_.compute_seconds + launches);
}

void TileSpace::Sweep(const LengthLists& lengths, const std::function<bool(int64_t)>& enter,
                      const std::function<void(const Cuts&)>& visit) {
  std::array<std::vector<const AxisCut*>, kAxes> choices;
  ConvShape least = problem().shape;  // extents that no choice of the open axes undercuts
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    AxisCut smallest = *Cut(axis, lengths[i].front());
    for (const int64_t length : lengths[i]) {
      const AxisCut* const cut = Cut(axis, length);
      if (!choices[i].empty() && choices[i].back() == cut) continue;  // rounded to the same length
      choices[i].push_back(cut);
      smallest.length = std::min(smallest.length, choices[i].back()->length);
      smallest.in = std::min(smallest.in, choices[i].back()->in);
      smallest.out = std::min(smallest.out, choices[i].back()->out);
      smallest.pooled = std::min(smallest.pooled, choices[i].back()->pooled);
      smallest.saved = std::min(smallest.saved, choices[i].back()->saved);
    }
    SetExtents(smallest, &least);
  }
  Cuts cuts{};
  const std::function<void(int, const ConvShape&, int64_t)> descend =
      [&](int level, const ConvShape& outer, int64_t outer_steps) {
        for (const AxisCut* cut : choices[level]) {
          const int64_t steps = Mul(outer_steps, cut->count);
          if (!enter(steps)) continue;
          ConvShape shape = outer;
          SetExtents(*cut, &shape);
          if (SingleBytes(shape, false) > request_.budget) continue;
          cuts[level] = cut;
          if (level + 1 == kAxes) {
            visit(cuts);
          } else {
            descend(level + 1, shape, steps);
          }
        }
      };
  descend(0, least, 1);
}

bool TileSpace::IsPartial(const Cuts& cuts) const {
  return std::any_of(cuts.begin(), cuts.end(), [&](const AxisCut* cut) {
    return cut->count > 1 && !moves_[Index(rates_.roles().output())][Index(cut->axis)];
  });
}

TileSpace::Slots TileSpace::SlotsOf(const Cuts& cuts, const ConvShape& tile) const {
  Slots slots;
  const bool partial = IsPartial(cuts);
  const AxisArray counts = CountsOf(cuts);
  for (const Operand operand : rates_.roles().used()) {
    const int i = Index(operand);
    slots.bytes[i] = footprint_.SlotBytes(tile, operand, partial);
    slots.single = Add(slots.single, slots.bytes[i]);
    slots.boxes[i] = 1;
    for (const AxisCut* cut : cuts) {
      if (cut->count <= 1 || !moves_[i][Index(cut->axis)]) continue;
      slots.boxes[i] = Mul(slots.boxes[i], cut->count);
    }
    slots.memory[i] = rates_.memory().StepsOf(operand, counts);
  }
  if (!footprint_.Indexable(tile)) slots.single = kSizeMax;
  return slots;
}

bool TileSpace::Open(const Cuts& cuts, const Wanted& wanted, Slots* slots) const {
  if (!Allowed(cuts)) return false;
  const ConvShape tile = ShapeOf(problem(), cuts);
  // Whatever the order and the slots, all of this is computed.
  const double compute_seconds = ComputeSeconds(problem(), rates_, cuts, tile);
  if (compute_seconds > wanted.Limit(0)) return false;
  *slots = SlotsOf(cuts, tile);
  slots->compute_seconds = compute_seconds;
  slots->steps = StepsOf(cuts);
  return slots->single <= request_.budget && compute_seconds <= wanted.Limit(slots->single);
}

const std::vector<LoopOrder>& TileSpace::Orders(const Cuts& cuts, OrdersOf* orders_of,
                                                KnownOrders* known) const {
  unsigned cut_axes = 0;
  for (const AxisCut* cut : cuts) cut_axes |= (cut->count > 1 ? 1U : 0U) << Index(cut->axis);
  std::vector<LoopOrder>& orders = (*known)[cut_axes];
  if (orders.empty()) orders = orders_of(problem(), CountsOf(cuts), request_.reproducible);
  return orders;
}

const std::vector<Point>& TileSpace::BestPoints(const Cuts& cuts, const Wanted& wanted) {
  points_.clear();
  Slots slots;
  if (!Open(cuts, wanted, &slots)) return points_;
  for (const LoopOrder& order : Orders(cuts, UsualOrders, &usual_orders_)) {
    PutPoints(cuts, slots, order, 2, wanted, 2);
  }
  return points_;
}

const std::vector<Point>& TileSpace::AllPoints(const Cuts& cuts, const Wanted& wanted) {
  points_.clear();
  Slots slots;
  if (!Open(cuts, wanted, &slots)) return points_;
  for (const LoopOrder& order : Orders(cuts, AllOrders, &all_orders_)) {
    PutPoints(cuts, slots, order, kMostSlots, wanted, 0);
  }
  return points_;
}

void TileSpace::PutTotals(const Slots& slots, const Flows& flows, const Depths& depths,
                          Totals* totals) const {
  totals->compute_seconds = slots.compute_seconds;
  totals->steps = slots.steps;
  for (const Operand operand : rates_.roles().used()) {
    const int i = Index(operand);
    totals->flow[i] = flows[i][depths[i]];
  }
}

// A price is the length of a walk, but never less than what CostOf and WireBound say, which need no
// walk; the busy times in its rank are the same in both; and a rank grows with the seconds.
double TileSpace::LeastSeconds(const Totals& totals, const Cost& cost) const {
  return std::max(cost.seconds, WireBound(rates_, totals));
}

// Where there are so few boxes, a slot for each keeps them all.
Depths TileSpace::MostSlots(const Slots& slots, int most) const {
  Depths useful{};
  for (const Operand operand : rates_.roles().used()) {
    const int i = Index(operand);
    useful[i] = slots.boxes[i] <= kMostSlots ? static_cast<int>(slots.boxes[i]) : most;
    if (rates_.roles().Stays(operand)) useful[i] = 1;  // no copy waits for it
  }
  return useful;
}

// More slots never fetch more, though they may roll more over: so with the most of all, and without
// what is rolled, no choice of slots costs less. But where rows are rolled over, those left to
// fetch may be no whole pieces of memory where the whole box's are, and so take longer.
double TileSpace::RankBound(const Slots& slots, const Flows& flows, const Depths& most) {
  Totals& totals = totals_;
  PutTotals(slots, flows, most, &totals);
  for (const Operand operand : rates_.roles().used()) {
    const int i = Index(operand);
    Flow& flow = totals.flow[i];
    flow.move_seconds = 0.0;
    flow.seconds = std::min(flow.seconds, flows[i][1].seconds);
    flow.end_seconds = std::min(flow.end_seconds, flows[i][1].end_seconds);
  }
  const Cost cost = CostOf(rates_, totals);
  return RankOf(cost, LeastSeconds(totals, cost));
}

double TileSpace::Limit(const Wanted& wanted, int64_t bytes, size_t best) const {
  const bool full = best > 0 && points_.size() == best;
  return full ? std::min(wanted.Limit(bytes), points_.back().rank) : wanted.Limit(bytes);
}

void TileSpace::PutPoints(const Cuts& cuts, const Slots& slots, const LoopOrder& order,
                          int most_slots, const Wanted& wanted, size_t best) {
  const Depths most = MostSlots(slots, most_slots);
  Flows& flows = flows_;
  const auto put_flow = [&](Operand operand, int depth) {
    const int i = Index(operand);
    flows[i][depth] = FlowOf(problem(), rates_, cuts, order, slots.memory[i], operand, depth);
  };
  for (const Operand operand : rates_.roles().used()) {
    const int i = Index(operand);
    put_flow(operand, most[i]);
    flows[i][1] = flows[i][most[i]];
    if (most[i] > 1 && RollingBreaksRows(problem(), cuts, operand)) put_flow(operand, 1);
  }
  if (RankBound(slots, flows, most) > Limit(wanted, slots.single, best)) return;
  for (const Operand operand : rates_.roles().used()) {
    const int i = Index(operand);
    for (int depth = 1; depth < most[i]; ++depth) {
      if (flows[i][most[i]].varies) {
        put_flow(operand, depth);
      } else {
        flows[i][depth] = flows[i][most[i]];
      }
    }
  }
  int choices = 1;
  for (const Operand ring : rings_) choices *= most[Index(ring)];
  Point point{cuts, order, {}, 0.0, 0.0, 0};
  for (int choice = 0; choice < choices; ++choice) {
    point.depths = DepthsOf(choice, most);
    point.bytes = 0;
    for (const Operand operand : rates_.roles().used()) {
      const int i = Index(operand);
      point.bytes = Add(point.bytes, Mul(point.depths[i], slots.bytes[i]));
    }
    if (point.bytes > request_.budget) continue;
    PutTotals(slots, flows, point.depths, &totals_);
    const Cost cost = CostOf(rates_, totals_);
    const double least = LeastSeconds(totals_, cost);
    point.bound = RankOf(cost, least);
    if (point.bound > Limit(wanted, point.bytes, best)) continue;
    point.rank = RankOf(cost, Estimate(rates_, totals_, cost, least, point.depths, true));
    Keep(point, best);
  }
}

Depths TileSpace::DepthsOf(int choice, const Depths& most) const {
  Depths depths{};
  for (const Operand ring : rings_) {
    depths[Index(ring)] = 1 + choice % most[Index(ring)];
    choice /= most[Index(ring)];
  }
  const int out = depths[Index(rates_.roles().output())];
  int& bits = depths[Index(Operand::kSaved)];  // beside what they tell of
  if (rates_.roles().restores())
    bits = std::min(most[Index(Operand::kSaved)], depths[Index(Operand::kZ)]);
  for (int i = 0; i < kOperands; ++i) {
    if (depths[i] == 0) depths[i] = std::min(most[i], out);
  }
  return depths;
}

void TileSpace::Keep(const Point& point, size_t best) {
  const auto better = [](const Point& a, const Point& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.bytes < b.bytes;
  };
  const auto place =
      best == 0 ? points_.end() : std::upper_bound(points_.begin(), points_.end(), point, better);
  points_.insert(place, point);
  if (best > 0 && points_.size() > best) points_.pop_back();
}

// Padded tiles of backward data may hold a row less where they are twice as long: pads are even.
int64_t TileSpace::LeastBytes(Tiling* tiling) {
  const bool pads = problem().direction == Direction::kBackwardData;
  int64_t choices = 1;
  for (int i = 0; i < kAxes; ++i) choices *= pads && IsSpatial(static_cast<Axis>(i)) ? 3 : 2;
  int64_t least = kSizeMax;
  for (int64_t choice = 0; choice < choices; ++choice) {
    Cuts cuts{};
    int64_t rest = choice;
    for (int i = 0; i < kAxes; ++i) {
      const auto axis = static_cast<Axis>(i);
      const int64_t ways = pads && IsSpatial(axis) ? 3 : 2;
      const int64_t shortest = ShortestOf(problem(), axis), whole = ExtentsOf(problem())[i];
      cuts[i] = Cut(axis, rest % ways == 0 ? shortest : rest % ways == 1 ? whole : 2 * shortest);
      rest /= ways;
    }
    if (!Allowed(cuts)) continue;
    const int64_t bytes = SlotsOf(cuts, ShapeOf(problem(), cuts)).single;
    if (bytes >= least) continue;
    least = bytes;
    *tiling = TilingOf(cuts);
  }
  return least;
}

}  // namespace oocdnn
