// TileSpace: the tilings of one problem on one engine, and what each is worth at a glance.
//
// A sweep visits every combination of the given tile lengths that fits the budget, and leaves out
// whole branches whose least memory does not. Each tiling becomes points: one per loop order and
// ring depths, priced by Estimate; but none where a bound of the tiling, of the order or of the
// point itself says that it is not wanted.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "model/price/cost.hpp"
#include "model/price/footprint.hpp"

namespace oocdnn {

struct Point {
  Cuts cuts{};
  LoopOrder order{};
  Depths depths{};
  double rank = 0.0;   // estimated, see RankOf
  double bound = 0.0;  // no price of this point ranks below it
  int64_t bytes = 0;   // of its slots
};

// Which points are worth having: those whose rank may be `rank` at most, or `frugal` where they
// take `frugal_bytes` at most.
struct Wanted {
  double rank = std::numeric_limits<double>::infinity();
  double frugal = 0.0;
  int64_t frugal_bytes = 0;

  [[nodiscard]] double Limit(int64_t bytes) const {
    return bytes <= frugal_bytes ? std::max(rank, frugal) : rank;
  }
};

using LengthLists = std::array<std::vector<int64_t>, kAxes>;

class TileSpace {
 public:
  // The request and the profile must outlive this.
  TileSpace(const PlanRequest& request, int engine, const Profile& profile);

  // The cut of an axis into tiles of `length`; lives as long as this.
  const AxisCut* Cut(Axis axis, int64_t length);
  [[nodiscard]] Tiling TilingOf(const Cuts& cuts) const;
  [[nodiscard]] Cuts CutsOf(const Tiling& tiling);  // which is not tapered
  [[nodiscard]] Candidate CandidateOf(const Point& point) const;

  // Calls `visit` for every tiling of these lengths whose slots, one per operand, fit the budget,
  // and of all whose numbers of steps `enter` lets in: a tiling's own, and those of its cuts on
  // fewer axes.
  void Sweep(const LengthLists& lengths, const std::function<bool(int64_t)>& enter,
             const std::function<void(const Cuts&)>& visit);
  // No plan of so many steps takes less: of the floor's arithmetic each more of them costs a
  // launch.
  [[nodiscard]] double LeastSeconds(int64_t steps) const;

  // The two points of a tiling with the best estimates, of those that are wanted and fit the budget
  // with at most two slots per ring, or as many as there are boxes where these are three at most.
  // None where a rule forbids the tiling. Valid until the next call.
  const std::vector<Point>& BestPoints(const Cuts& cuts, const Wanted& wanted);
  // All of them that are wanted, with up to three slots per ring and in every loop order.
  const std::vector<Point>& AllPoints(const Cuts& cuts, const Wanted& wanted);

  // The bytes of the smallest tiling that any budget could be asked for, and the tiling.
  int64_t LeastBytes(Tiling* tiling);

  [[nodiscard]] const Problem& problem() const { return request_.problem; }
  [[nodiscard]] const Rates& rates() const { return rates_; }

 private:
  using OrdersOf = std::vector<LoopOrder>(const Problem&, const AxisArray&, bool);
  // By the axes that are cut, a bit each: what orders there are follows from those.
  using KnownOrders = std::array<std::vector<LoopOrder>, 1 << kAxes>;
  const std::vector<LoopOrder>& Orders(const Cuts& cuts, OrdersOf* orders_of,
                                       KnownOrders* known) const;
  struct Slots;                         // of one tiling: bytes per slot and boxes of each operand
  static constexpr int kMostSlots = 3;  // of a ring
  // Of one tiling in one order: what each operand costs with each number of slots.
  using Flows = std::array<std::array<Flow, kMostSlots + 1>, kOperands>;
  [[nodiscard]] Slots SlotsOf(const Cuts& cuts, const ConvShape& tile) const;
  [[nodiscard]] bool IsPartial(const Cuts& cuts) const;
  [[nodiscard]] bool Allowed(const Cuts& cuts) const;
  [[nodiscard]] int64_t SingleBytes(const ConvShape& tile, bool partial) const;
  // Whether the tiling is legal, fits, and may have points that are wanted.
  bool Open(const Cuts& cuts, const Wanted& wanted, Slots* slots) const;
  // Puts the points of one order into points_. `best`: so many of all that are there, 0: all.
  void PutPoints(const Cuts& cuts, const Slots& slots, const LoopOrder& order, int most_slots,
                 const Wanted& wanted, size_t best);
  void Keep(const Point& point, size_t best);
  // The choice of that number among all ring depths up to `most`.
  [[nodiscard]] Depths DepthsOf(int choice, const Depths& most) const;
  // Of the operands in use; all others have none.
  void PutTotals(const Slots& slots, const Flows& flows, const Depths& depths,
                 Totals* totals) const;
  // No price with these totals is below it, and so none ranks below that.
  [[nodiscard]] double LeastSeconds(const Totals& totals, const Cost& cost) const;
  // With the flows of `most` slots and that of a single one of what rolls, no price of any number
  // of slots ranks below it.
  [[nodiscard]] double RankBound(const Slots& slots, const Flows& flows, const Depths& most);
  [[nodiscard]] double Limit(const Wanted& wanted, int64_t bytes, size_t best) const;
  // The slots of each operand that are of use, `most` at most where not all boxes are kept.
  [[nodiscard]] Depths MostSlots(const Slots& slots, int most) const;

  const PlanRequest& request_;
  int engine_;
  bool padding_as_data_;
  Footprint footprint_;
  Rates rates_;
  Cost floor_;
  std::vector<Operand> rings_;  // whose depths are free; all others follow from the output's
  std::vector<Point> points_;
  Flows flows_{};  // of the tiling and the order at hand, as far as they were looked at
  Totals totals_;  // of the depths at hand
  KnownOrders usual_orders_, all_orders_;
  std::array<std::array<bool, kAxes>, kOperands> moves_{};  // see Moves
  std::array<std::map<int64_t, AxisCut>, kAxes> cuts_;
};

}  // namespace oocdnn
