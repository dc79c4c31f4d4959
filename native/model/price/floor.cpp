// FloorOf: what no plan of a problem undercuts.
#include <algorithm>
#include <limits>

#include "model/price/cost.hpp"

namespace oocdnn {
namespace {

// The rows of x on each axis that some window reaches: tiles may leave out those between windows.
Spatial RowsReached(const Problem& problem) {
  Spatial rows = problem.shape.in;
  for (int s = 0; s < 3; ++s) {
    const auto axis = static_cast<Axis>(Index(Axis::kD) + s);
    const bool apart = problem.shape.stride[s] > 1 || problem.pool.stride[s] > 1;
    if (!apart || !Moves(problem, Operand::kX, axis)) continue;
    AxisArray lengths = ExtentsOf(problem);
    lengths[Index(axis)] = 1;
    const AxisCut shortest = CutOf(problem, MakeTiling(problem, lengths, true), axis);
    rows[s] = std::min(rows[s], shortest.rows[Index(Operand::kX)].rolled.all);
  }
  return rows;
}

double ShareOf(const Spatial& some, const Spatial& all) {
  double share = 1.0;
  for (int s = 0; s < 3; ++s) {
    if (all[s] > 0) share *= static_cast<double>(some[s]) / static_cast<double>(all[s]);
  }
  return share;
}

// The problem in one tile, at the least that its arithmetic may take in tiles of whatever size.
// With padding as data the whole leaves out rows that meet nothing but padding, without it the
// padding costs no arithmetic: of each piece of work the lesser is the least.
Totals TotalsOfWhole(const Problem& problem, const Rates& rates, bool padding_as_data,
                     const Spatial& reached) {
  const Tiling whole = WholeTiling(problem, padding_as_data);
  const OwnedCuts owned(problem, whole);
  Totals totals = TotalsOf(problem, rates, owned.cuts, DefaultOrder(problem), {});
  const ConvShape tile = TileShape(problem, whole);
  ConvShape least = tile;
  for (int s = 0; s < 3 && rates.roles().source() == Operand::kX; ++s) {
    least.in[s] = std::min(least.in[s], reached[s]);
  }
  totals.compute_seconds += rates.LeastRunSeconds(least) - rates.RunSeconds(tile, {});
  return totals;
}

template <typename Seconds>
double LeastOfEngines(const PlanRequest& request, const Seconds& seconds_of) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < request.engines.size(); ++i) {
    if (request.engines[i].name.empty()) continue;
    least = std::min(least, seconds_of(static_cast<int>(i)));
  }
  return least;
}

}  // namespace

Cost FloorCost(const PlanRequest& request, const Rates& rates) {
  const Problem& problem = request.problem;
  const Spatial reached = RowsReached(problem);
  Totals least = TotalsOfWhole(problem, rates, false, reached);
  const Totals other = TotalsOfWhole(problem, rates, true, reached);
  least.compute_seconds = std::min(least.compute_seconds, other.compute_seconds);
  for (int i = 0; i < kOperands; ++i) {
    least.flow[i].seconds = std::min(least.flow[i].seconds, other.flow[i].seconds);
    least.flow[i].bytes = std::min(least.flow[i].bytes, other.flow[i].bytes);
  }
  if (rates.roles().Has(Operand::kX) && !rates.roles().Writes(Operand::kX)) {
    Flow& x = least.flow[Index(Operand::kX)];
    const double share = ShareOf(reached, problem.shape.in);
    x.seconds *= share;
    x.move_seconds *= share;  // of the pass over what was fetched
    x.bytes = static_cast<int64_t>(share * static_cast<double>(x.bytes));
  }
  return CostOf(rates, least);
}

double FloorOf(const PlanRequest& request, int engine, const Profile& profile) {
  return FloorCost(request, Rates(request, engine, profile)).seconds;
}

double FloorOf(const PlanRequest& request, const Profile& profile) {
  return LeastOfEngines(request, [&](int engine) { return FloorOf(request, engine, profile); });
}

double ComputeFloorOf(const PlanRequest& request, const Profile& profile) {
  return LeastOfEngines(request, [&](int engine) {
    return FloorCost(request, Rates(request, engine, profile)).compute_seconds;
  });
}

}  // namespace oocdnn
