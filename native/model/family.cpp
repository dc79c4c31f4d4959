#include "model/family.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "model/orders.hpp"
#include "model/rank.hpp"

namespace oocdnn {
namespace {

constexpr double kMostTilings = 6000;   // of one sweep, before memory rules any out
constexpr size_t kKept = 128;           // points that a sweep hands on
constexpr size_t kRefined = 4;          // tilings that are refined
constexpr int kRounds = 3;              // of refining
constexpr int64_t kLooks = 8;           // lengths tried between two neighbours when refining
constexpr size_t kPriced = 24;          // finalists that are priced
constexpr int64_t kPricedSteps = 2048;  // or more of them, while their schedules are short
constexpr size_t kFrugal = 3;           // and as many that need less memory
constexpr size_t kDeepened = 10;        // of which with more slots in all rings too,
constexpr size_t kVeryBest = 3;         // and of which in each ring too

bool Empty(const LengthLists& lists) {
  return std::any_of(lists.begin(), lists.end(), [](const auto& list) { return list.empty(); });
}

// The candidate with one more slot in a ring, or in every ring of two for kOperands; as it is where
// no more slots are of use.
Candidate Deeper(const Problem& problem, Candidate candidate, int ring) {
  constexpr int kMostSlots = 3;
  AxisArray counts{};
  for (int i = 0; i < kAxes; ++i) counts[i] = candidate.tiling.Count(static_cast<Axis>(i));
  for (int i = 0; i < kOperands; ++i) {
    int& depth = candidate.depths[i];
    const bool raised = ring == kOperands ? depth == 2 : i == ring;
    if (!raised || !problem.Uses(static_cast<Operand>(i)) || depth >= kMostSlots) continue;
    if (BoxesOf(problem, counts, static_cast<Operand>(i)) > depth) ++depth;
  }
  return candidate;
}

}  // namespace

void Keeper::Put(const Point& point) {
  if (point.rank >= worst_) return;
  points_.push_back(point);
  if (points_.size() >= 2 * kKept) Trim();
}

const std::vector<Point>& Keeper::Best() {
  Trim();
  return points_;
}

void Keeper::Trim() {
  std::stable_sort(points_.begin(), points_.end(), [](const Point& a, const Point& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.bytes < b.bytes;
  });
  if (points_.size() < kKept) return;
  points_.resize(kKept);
  worst_ = points_.back().rank;
}

FamilySearch::FamilySearch(TileSpace* space, const PlanRequest& request, const Profile& profile,
                           bool cut)
    : space_(*space), request_(request), profile_(profile), cut_(cut) {}

std::vector<RankedCandidate> FamilySearch::Run() {
  const LengthLists lengths = Lists();
  if (Empty(lengths)) return {};
  space_.Sweep(lengths, [this](const Cuts& cuts) { Consider(cuts); });
  for (int round = 0; round < kRounds; ++round) Refine(lengths);
  PriceFinalists();
  Deepen();
  if (request_.exhaustive) PriceAll();
  Rank(&priced_);
  return std::move(priced_);
}

// The longer the lists, the coarser they grow, until their product is affordable.
LengthLists FamilySearch::Lists() const {
  LengthLists lists;
  for (const double growth : {1.2, 1.35, 1.5, 2.0, 3.0, 4.0, 8.0, 32.0}) {
    double tilings = 1.0;
    for (int i = 0; i < kAxes; ++i) {
      const auto axis = static_cast<Axis>(i);
      lists[i] = Restrict(axis, UsualLengths(problem(), axis, growth));
      tilings *= static_cast<double>(lists[i].size());
    }
    if (tilings <= kMostTilings) break;
  }
  return lists;
}

// The family's share of the lengths of the summed channels; all lengths of other axes.
std::vector<int64_t> FamilySearch::Restrict(Axis axis, std::vector<int64_t> lengths) const {
  if (axis != SummedChannels(problem()) || axis == Axis::kN) return lengths;
  const int64_t whole = ExtentsOf(problem())[Index(axis)];
  if (!cut_) return {whole};
  std::erase(lengths, whole);
  return lengths;
}

void FamilySearch::Consider(const Cuts& cuts) {
  if (space_.BoundOf(cuts) >= keeper_.Worst()) return;
  const std::vector<Point> points = space_.PointsOf(cuts, 2, true);
  considered_ += static_cast<int64_t>(points.size());
  const double share = kFrugalShare * static_cast<double>(request_.budget);
  for (const Point& point : points) {
    keeper_.Put(point);
    if (static_cast<double>(point.bytes) <= share) frugal_.Put(point);
  }
}

// Looks between the coarse lengths next to those of the best tilings: along each axis, and for the
// very best along each pair of axes, as what one gives up in memory the other can take.
void FamilySearch::Refine(const LengthLists& lengths) {
  std::vector<Cuts> tilings;
  for (const Point& point : keeper_.Best()) {
    if (tilings.size() >= kRefined) break;
    if (std::find(tilings.begin(), tilings.end(), point.cuts) == tilings.end()) {
      tilings.push_back(point.cuts);
    }
  }
  for (const Cuts& tiling : tilings) {
    const bool pairs = tiling == tilings.front();
    std::array<std::vector<const AxisCut*>, kAxes> near;
    for (int i = 0; i < kAxes; ++i) near[i] = Near(*tiling[i], lengths[i]);
    for (int i = 0; i < kAxes; ++i) {
      for (const AxisCut* one : near[i]) {
        Cuts cuts = tiling;
        cuts[i] = one;
        if (refined_.insert(cuts).second) Consider(cuts);
        for (int j = i + 1; pairs && j < kAxes; ++j) {
          for (const AxisCut* two : near[j]) {
            Cuts both = cuts;
            both[j] = two;
            if (refined_.insert(both).second) Consider(both);
          }
        }
      }
    }
  }
}

// Cuts of balanced lengths between the neighbours of `cut` in a list that is sorted downward.
std::vector<const AxisCut*> FamilySearch::Near(const AxisCut& cut,
                                               const std::vector<int64_t>& list) {
  const int64_t extent = ExtentsOf(problem())[Index(cut.axis)];
  if (extent <= 1 || list.size() <= 1) return {};
  int64_t longer = cut.length, shorter = cut.length;
  for (const int64_t other : list) {
    if (other > cut.length) longer = other;
    if (other >= cut.length) continue;
    shorter = other;
    break;
  }
  const int64_t least = CeilDiv(extent, longer), most = CeilDiv(extent, shorter);
  const int64_t stride = CeilDiv(most - least + 1, kLooks);
  std::vector<int64_t> lengths;
  for (int64_t pieces = least; pieces <= most; pieces += stride) {
    lengths.push_back(CeilDiv(extent, pieces));
  }
  std::vector<const AxisCut*> cuts;
  for (const int64_t length : Restrict(cut.axis, std::move(lengths))) {
    const AxisCut* near = space_.Cut(cut.axis, length);
    if (near->length != cut.length) cuts.push_back(near);
  }
  return cuts;
}

void FamilySearch::Price(const Candidate& candidate) {
  const Cost cost = PriceOf(request_, candidate, profile_);
  ++considered_;
  best_ = std::min(best_, cost.seconds);
  priced_.push_back({candidate, cost});
}

void FamilySearch::PriceFinalists() {
  int64_t steps = 0;
  for (const Point& point : keeper_.Best()) {
    if (priced_.size() >= kPriced && steps > kPricedSteps) break;
    Price(space_.CandidateOf(point));
    steps += priced_.back().cost.steps;
  }
  const std::vector<Point>& frugal = frugal_.Best();
  for (size_t i = 0; i < std::min(frugal.size(), kFrugal); ++i) {
    Price(space_.CandidateOf(frugal[i]));
  }
}

// One more slot for each ring in turn, and for all rings of two at once, of the best few.
void FamilySearch::Deepen() {
  Rank(&priced_);
  const size_t count = std::min(priced_.size(), kDeepened);
  for (size_t i = 0; i < count; ++i) {
    for (int ring = i < kVeryBest ? 0 : kOperands; ring <= kOperands; ++ring) {
      const Candidate deeper = Deeper(problem(), priced_[i].candidate, ring);
      if (deeper == priced_[i].candidate) continue;
      if (EstimateBytes(request_, deeper) <= request_.budget) Price(deeper);
    }
  }
}

void FamilySearch::PriceAll() {
  LengthLists lengths;
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    lengths[i] = Restrict(axis, AllLengths(problem(), axis));
  }
  if (Empty(lengths)) return;
  space_.Sweep(lengths, [this](const Cuts& cuts) {
    if (space_.BoundOf(cuts) >= best_) return;
    for (const Point& point : space_.PointsOf(cuts, 3, false)) {
      if (point.bound < best_) Price(space_.CandidateOf(point));
    }
  });
}

}  // namespace oocdnn
