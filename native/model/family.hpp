// The search on one engine.
#pragma once

#include <limits>
#include <set>
#include <vector>

#include "model/space.hpp"

namespace oocdnn {

// The best points by estimate, a bounded number of them.
class Keeper {
 public:
  // An estimate that is not below this is not kept.
  [[nodiscard]] double Worst() const { return worst_; }
  void Put(const Point& point);
  const std::vector<Point>& Best();

 private:
  void Trim();
  std::vector<Point> points_;
  double worst_ = std::numeric_limits<double>::infinity();
};

// Sweeps the usual tile lengths on all seven axes with the closed-form estimate, refines the best
// tilings along each axis, and prices the finalists by walking their schedules. An exhaustive
// search goes on to price every tiling whose lower bound beats the best so far.
//
// A family holds the tilings with the summed channels whole, or those with them cut.
class FamilySearch {
 public:
  FamilySearch(TileSpace* space, const PlanRequest& request, const Profile& profile, bool cut);

  std::vector<RankedCandidate> Run();  // best first
  [[nodiscard]] int64_t considered() const { return considered_; }

 private:
  [[nodiscard]] const Problem& problem() const { return request_.problem; }
  [[nodiscard]] LengthLists Lists() const;
  [[nodiscard]] std::vector<int64_t> Restrict(Axis axis, std::vector<int64_t> lengths) const;
  std::vector<const AxisCut*> Near(const AxisCut& cut, const std::vector<int64_t>& list);
  void Consider(const Cuts& cuts);
  void Refine(const LengthLists& lengths);
  void Price(const Candidate& candidate);
  void PriceFinalists();
  void Deepen();
  void PriceAll();

  TileSpace& space_;
  const PlanRequest& request_;
  const Profile& profile_;
  bool cut_;
  Keeper keeper_, frugal_;  // all points, and those of a share of the budget
  std::set<Cuts> refined_;
  std::vector<RankedCandidate> priced_;
  double best_ = std::numeric_limits<double>::infinity();  // of priced_
  int64_t considered_ = 0;
};

}  // namespace oocdnn
