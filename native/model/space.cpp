#include "model/space.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "model/orders.hpp"

namespace oocdnn {
namespace {

AxisArray LengthsOf(const Cuts& cuts) {
  AxisArray lengths{};
  for (int i = 0; i < kAxes; ++i) lengths[i] = cuts[i]->length;
  return lengths;
}

bool IsPartial(const Problem& problem, const Cuts& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [&](const AxisCut* cut) {
    return cut->count > 1 && IsReduction(problem, cut->axis);
  });
}

// The operands whose ring depths are free; all others follow from the output's.
std::vector<Operand> RingOperands(const Problem& problem) {
  std::vector<Operand> rings;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    if (problem.Uses(operand)) rings.push_back(operand);
  }
  if (problem.output() == Operand::kBias) rings.push_back(Operand::kBias);
  return rings;
}

// The shortest tile on the axis.
int64_t ShortestOf(const Problem& problem, Axis axis) {
  AxisArray lengths = ExtentsOf(problem);
  lengths[Index(axis)] = 1;
  return MakeTiling(problem, lengths, false).length[Index(axis)];
}

}  // namespace

struct TileSpace::Slots {
  std::array<int64_t, kOperands> bytes{}, boxes{};
  int64_t single = 0;  // one slot of each
  double compute_seconds = 0.0;
  int64_t steps = 0;
};

TileSpace::TileSpace(const PlanRequest& request, int engine, const Profile& profile)
    : request_(request),
      engine_(engine),
      padding_as_data_(!request.engines[static_cast<size_t>(engine)].symmetric_padding),
      footprint_(request.problem, request.engines[static_cast<size_t>(engine)]),
      rates_(request, engine, profile) {}

const AxisCut* TileSpace::Cut(Axis axis, int64_t length) {
  auto& known = cuts_[Index(axis)];
  const auto found = known.find(length);
  if (found != known.end()) return &found->second;
  AxisArray lengths = ExtentsOf(problem());
  lengths[Index(axis)] = length;
  const Tiling tiling = MakeTiling(problem(), lengths, padding_as_data_);
  return &known.emplace(length, CutOf(problem(), tiling, axis)).first->second;
}

Tiling TileSpace::TilingOf(const Cuts& cuts) const {
  return MakeTiling(problem(), LengthsOf(cuts), padding_as_data_);
}

Candidate TileSpace::CandidateOf(const Point& point) const {
  return {TilingOf(point.cuts), point.order, point.depths, engine_};
}

bool TileSpace::Allowed(const Cuts& cuts) const {
  return !request_.reproducible || KeepsSummationOrder(problem(), LengthsOf(cuts), CountsOf(cuts));
}

int64_t TileSpace::SingleBytes(const ConvShape& tile, bool partial) const {
  int64_t bytes = 0;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (problem().Uses(operand)) {
      bytes = Add(bytes, footprint_.SlotBytes(tile, operand, partial));
    }
  }
  return bytes;
}

void TileSpace::Sweep(const LengthLists& lengths, const std::function<void(const Cuts&)>& visit) {
  std::array<std::vector<const AxisCut*>, kAxes> choices;
  ConvShape least = problem().shape;  // extents that no choice of the open axes undercuts
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    AxisCut smallest = *Cut(axis, lengths[i].front());
    for (const int64_t length : lengths[i]) {
      choices[i].push_back(Cut(axis, length));
      smallest.length = std::min(smallest.length, choices[i].back()->length);
      smallest.in = std::min(smallest.in, choices[i].back()->in);
      smallest.out = std::min(smallest.out, choices[i].back()->out);
    }
    SetExtents(smallest, &least);
  }
  Cuts cuts{};
  const std::function<void(int, const ConvShape&)> descend = [&](int level,
                                                                 const ConvShape& outer) {
    for (const AxisCut* cut : choices[level]) {
      ConvShape shape = outer;
      SetExtents(*cut, &shape);
      if (SingleBytes(shape, false) > request_.budget) continue;
      cuts[level] = cut;
      if (level + 1 == kAxes) {
        visit(cuts);
      } else {
        descend(level + 1, shape);
      }
    }
  };
  descend(0, least);
}

double TileSpace::BoundOf(const Cuts& cuts) const {
  int64_t steps = 0;
  return ComputeSeconds(problem(), rates_, cuts, &steps);
}

TileSpace::Slots TileSpace::SlotsOf(const Cuts& cuts) const {
  Slots slots;
  const ConvShape tile = ShapeOf(problem(), cuts);
  const bool partial = IsPartial(problem(), cuts);
  const AxisArray counts = CountsOf(cuts);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem().Uses(operand)) continue;
    slots.bytes[i] = footprint_.SlotBytes(tile, operand, partial);
    slots.boxes[i] = BoxesOf(problem(), counts, operand);
    slots.single = Add(slots.single, slots.bytes[i]);
  }
  if (!footprint_.Indexable(tile)) slots.single = kSizeMax;
  slots.compute_seconds = ComputeSeconds(problem(), rates_, cuts, &slots.steps);
  return slots;
}

std::vector<Point> TileSpace::PointsOf(const Cuts& cuts, int most_slots, bool best_only) {
  std::vector<Point> points;
  if (!Allowed(cuts)) return points;
  const Slots slots = SlotsOf(cuts);
  if (slots.single > request_.budget) return points;
  for (const LoopOrder& order : UsualOrders(problem(), CountsOf(cuts), request_.reproducible)) {
    PutPoints(cuts, slots, order, most_slots, best_only, &points);
  }
  return points;
}

void TileSpace::PutPoints(const Cuts& cuts, const Slots& slots, const LoopOrder& order,
                          int most_slots, bool best_only, std::vector<Point>* points) const {
  constexpr int kMost = 3;
  const std::vector<Operand> rings = RingOperands(problem());
  const int out = Index(problem().output());
  std::array<std::array<Flow, kMost + 1>, kOperands> flow;
  std::array<int, kOperands> most{};
  int choices = 1;
  for (int i = 0; i < kOperands; ++i) {
    if (!problem().Uses(static_cast<Operand>(i))) continue;
    // Where there are so few boxes, a slot for each keeps them all.
    const int64_t useful = slots.boxes[i] <= kMost ? slots.boxes[i] : most_slots;
    most[i] = static_cast<int>(useful);
    for (int depth = 1; depth <= most[i]; ++depth) {
      flow[i][depth] = FlowOf(problem(), rates_, cuts, order, static_cast<Operand>(i), depth);
    }
  }
  for (const Operand ring : rings) choices *= most[Index(ring)];
  for (int choice = 0; choice < choices; ++choice) {
    Point point{cuts, order, {}, 0.0, 0.0, 0};
    int rest = choice;
    for (const Operand ring : rings) {
      point.depths[Index(ring)] = 1 + rest % most[Index(ring)];
      rest /= most[Index(ring)];
    }
    Totals totals;
    totals.compute_seconds = slots.compute_seconds;
    totals.steps = slots.steps;
    for (int i = 0; i < kOperands; ++i) {
      if (most[i] == 0) continue;
      if (point.depths[i] == 0) point.depths[i] = std::min(most[i], point.depths[out]);
      point.bytes = Add(point.bytes, Mul(point.depths[i], slots.bytes[i]));
      totals.flow[i] = flow[i][point.depths[i]];
    }
    if (point.bytes > request_.budget) continue;
    const Cost cost = CostOf(problem(), rates_, totals);
    point.bound = cost.seconds;
    point.rank = RankOf(cost, Estimate(problem(), rates_, totals, cost, point.depths));
    points->push_back(point);
  }
  if (!best_only || points->size() <= 2) return;
  std::partial_sort(points->begin(), points->begin() + 2, points->end(),
                    [](const Point& a, const Point& b) {
                      return a.rank != b.rank ? a.rank < b.rank : a.bytes < b.bytes;
                    });
  points->resize(2);
}

int64_t TileSpace::LeastBytes(Tiling* tiling) {
  int64_t least = kSizeMax;
  for (int choice = 0; choice < (1 << kAxes); ++choice) {
    Cuts cuts{};
    for (int i = 0; i < kAxes; ++i) {
      const auto axis = static_cast<Axis>(i);
      const bool whole = ((choice >> i) & 1) != 0;
      cuts[i] = Cut(axis, whole ? ExtentsOf(problem())[i] : ShortestOf(problem(), axis));
    }
    if (!Allowed(cuts)) continue;
    const int64_t bytes = SlotsOf(cuts).single;
    if (bytes >= least) continue;
    least = bytes;
    *tiling = TilingOf(cuts);
  }
  return least;
}

}  // namespace oocdnn
