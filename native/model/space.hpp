// TileSpace: the tilings of one problem on one engine, and what each is worth at a glance.
//
// A sweep visits every combination of the given tile lengths that fits the budget, and leaves out
// whole branches whose least memory does not. Each tiling becomes points: one per loop order and
// ring depths, priced by Estimate.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "model/cost.hpp"
#include "model/footprint.hpp"

namespace oocdnn {

struct Point {
  Cuts cuts{};
  LoopOrder order{};
  Depths depths{};
  double rank = 0.0;   // estimated, see RankOf
  double bound = 0.0;  // no pipeline of this point is shorter
  int64_t bytes = 0;   // of its slots
};

using LengthLists = std::array<std::vector<int64_t>, kAxes>;

class TileSpace {
 public:
  // The request and the profile must outlive this.
  TileSpace(const PlanRequest& request, int engine, const Profile& profile);

  // The cut of an axis into tiles of `length`; lives as long as this.
  const AxisCut* Cut(Axis axis, int64_t length);
  [[nodiscard]] Tiling TilingOf(const Cuts& cuts) const;
  [[nodiscard]] Candidate CandidateOf(const Point& point) const;

  // Calls `visit` for every tiling of these lengths whose slots, one per operand, fit the budget.
  void Sweep(const LengthLists& lengths, const std::function<void(const Cuts&)>& visit);

  // The points of a tiling that fit the budget, with at most `most_slots` per ring; none where even
  // single slots do not fit, or a rule forbids the tiling. With `best_only`, the two with the best
  // estimate.
  [[nodiscard]] std::vector<Point> PointsOf(const Cuts& cuts, int most_slots, bool best_only);

  // No point of the tiling takes less time. Cheap, for leaving out tilings.
  [[nodiscard]] double BoundOf(const Cuts& cuts) const;
  // The bytes of the smallest tiling that any budget could be asked for, and the tiling.
  int64_t LeastBytes(Tiling* tiling);

  [[nodiscard]] const Problem& problem() const { return request_.problem; }

 private:
  struct Slots;  // of one tiling: bytes per slot and boxes of each operand
  [[nodiscard]] Slots SlotsOf(const Cuts& cuts) const;
  [[nodiscard]] bool Allowed(const Cuts& cuts) const;
  [[nodiscard]] int64_t SingleBytes(const ConvShape& tile, bool partial) const;
  void PutPoints(const Cuts& cuts, const Slots& slots, const LoopOrder& order, int most_slots,
                 bool best_only, std::vector<Point>* points) const;

  const PlanRequest& request_;
  int engine_;
  bool padding_as_data_;
  Footprint footprint_;
  Rates rates_;
  std::array<std::map<int64_t, AxisCut>, kAxes> cuts_;
};

}  // namespace oocdnn
