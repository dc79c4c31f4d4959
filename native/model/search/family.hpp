// The search on one engine.
#pragma once

#include <limits>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "model/price/rank.hpp"
#include "model/search/space.hpp"

namespace oocdnn {

// How much of a family is looked at.
struct Effort {
  double tilings;        // of the sweep, before memory rules any out
  size_t kept;           // points that the sweep hands on
  int rounds;            // of refining the best tilings
  size_t priced;         // finalists that are priced,
  int64_t priced_steps;  // or more of them, while their schedules are short
  size_t deepened;       // of which with more slots too
  bool may_be_all;       // what an exhaustive search is for
};
constexpr Effort kThorough{6000, 128, 3, 24, 2048, 10, true};
// For what is to be offered, but cannot be the best.
constexpr Effort kBrief{800, 32, 2, 4, 0, 1, false};

// The best points by estimate, a bounded number of them, and none that is far from the best.
class Keeper {
 public:
  explicit Keeper(size_t kept) : kept_(kept) {}
  // An estimate that is above this is not kept.
  [[nodiscard]] double Worst() const { return worst_; }
  // A point of this estimate will come.
  void Expect(double rank);
  void Put(const Point& point);
  const std::vector<Point>& Best();

 private:
  void Trim();
  size_t kept_;
  std::vector<Point> points_;          // and up to as many that have been overtaken
  std::priority_queue<double> ranks_;  // of the best alone, the worst first
  double worst_ = std::numeric_limits<double>::infinity();
};

// Sweeps the usual tile lengths on all seven axes with the closed-form estimate, refines the best
// tilings along each axis, and prices the finalists by walking their schedules. An exhaustive
// search goes on to price, of every tile length, loop order and ring depth (TileSpace::AllPoints),
// each point that its lower bound lets be among the best.
//
// A family holds the tilings with the summed channels whole, or those with them cut.
class FamilySearch {
 public:
  FamilySearch(TileSpace* space, const PlanRequest& request, bool cut, const Effort& effort);

  std::vector<RankedCandidate> Run();  // best first
  [[nodiscard]] int64_t considered() const { return considered_; }

 private:
  [[nodiscard]] const Problem& problem() const { return request_.problem; }
  [[nodiscard]] LengthLists Lists() const;
  // A glance at few of the lengths, so that the sweep knows from the start what is far off.
  void LookAhead(const LengthLists& lengths);
  // Adds lengths at which rows of memory are made of whole pieces.
  void PutPieces(Axis axis, std::vector<int64_t>* lengths) const;
  [[nodiscard]] std::vector<int64_t> Restrict(Axis axis, std::vector<int64_t> lengths) const;
  std::vector<const AxisCut*> Near(const AxisCut& cut, const std::vector<int64_t>& list);
  void Consider(const Cuts& cuts);
  // The same once, of a tiling that refining meets again and again.
  void LookAt(const Cuts& cuts);
  // Whether tilings of so many steps may be among the best.
  [[nodiscard]] bool MayBeKept(int64_t steps) const;
  // Whether a point with this bound may be among the best.
  [[nodiscard]] bool MayLead(double bound) const { return bound <= kEqual * best_; }
  void Refine(const LengthLists& lengths);
  void Price(const Candidate& candidate);
  void PriceOnce(const Candidate& candidate);  // unless it was priced before
  void PriceFinalists();
  void Deepen();
  void PriceAll();
  void PriceAll(const LengthLists& lengths);

  TileSpace& space_;
  const PlanRequest& request_;
  bool cut_;
  const Effort& effort_;
  int64_t frugal_bytes_;
  LengthLists pieces_;      // see PieceLengths
  Keeper keeper_, frugal_;  // all points, and the frugal ones
  std::set<Cuts> refined_;
  std::set<std::pair<Cuts, bool>> looked_around_;  // whether along pairs of axes too
  std::vector<RankedCandidate> priced_;
  double best_ = std::numeric_limits<double>::infinity();  // rank of priced_
  int64_t considered_ = 0;
};

}  // namespace oocdnn
