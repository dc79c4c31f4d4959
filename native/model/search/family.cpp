#include "model/search/family.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/checked.hpp"
#include "model/price/orders.hpp"
#include "model/price/rank.hpp"
#include "model/search/pieces.hpp"

namespace oocdnn {
namespace {

constexpr size_t kRefined = 4;   // tilings that are refined
constexpr int64_t kLooks = 8;    // lengths tried between two neighbours when refining
constexpr size_t kFrugal = 3;    // finalists that need less memory, beside the best
constexpr size_t kVeryBest = 3;  // finalists that are tried with one more slot in each ring too
// Finalists that take at least so many times the best are not walked; nobody will run them.
constexpr double kHopeless = 1.1;
// Estimates are closer than that to prices: of 1,300 searches none led in the end whose estimate
// was further from the best.
constexpr double kFarOff = 1.1;
constexpr size_t kGlance = 3;  // of so many lengths one is looked at beforehand

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
    if (!raised || !problem.Has(static_cast<Operand>(i)) || depth >= kMostSlots) continue;
    if (BoxesOf(problem, counts, static_cast<Operand>(i)) > depth) ++depth;
  }
  return candidate;
}

}  // namespace

void Keeper::Expect(double rank) { worst_ = std::min(worst_, kFarOff * rank); }

void Keeper::Put(const Point& point) {
  if (point.rank > worst_) return;
  Expect(point.rank);
  points_.push_back(point);
  if (points_.size() >= 2 * kept_) Trim();
  ranks_.push(point.rank);
  if (ranks_.size() > kept_) ranks_.pop();
  if (ranks_.size() == kept_) worst_ = std::min(worst_, ranks_.top());
}

const std::vector<Point>& Keeper::Best() {
  Trim();
  return points_;
}

void Keeper::Trim() {
  std::stable_sort(points_.begin(), points_.end(), [](const Point& a, const Point& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.bytes < b.bytes;
  });
  if (points_.size() > kept_) points_.resize(kept_);
  while (!points_.empty() && points_.back().rank > worst_) points_.pop_back();
}

FamilySearch::FamilySearch(TileSpace* space, const PlanRequest& request, bool cut,
                           const Effort& effort)
    : space_(*space),
      request_(request),
      cut_(cut),
      effort_(effort),
      frugal_bytes_(static_cast<int64_t>(
          kFrugalShare * static_cast<double>(std::max<int64_t>(request.budget, 0)))),
      keeper_(effort.kept),
      frugal_(kFrugal) {
  for (int i = 0; i < kAxes; ++i) {
    pieces_[i] = PieceLengths(request_, space_.rates().memory(), static_cast<Axis>(i));
  }
}

std::vector<RankedCandidate> FamilySearch::Run() {
  const LengthLists lengths = Lists();
  if (Empty(lengths)) return {};
  LookAhead(lengths);
  space_.Sweep(
      lengths, [this](int64_t steps) { return MayBeKept(steps); },
      [this](const Cuts& cuts) { Consider(cuts); });
  for (int round = 0; round < effort_.rounds; ++round) Refine(lengths);
  PriceFinalists();
  Deepen();
  if (request_.exhaustive && effort_.may_be_all) PriceAll();
  Rank(&priced_);
  return std::move(priced_);
}

void FamilySearch::LookAhead(const LengthLists& lengths) {
  LengthLists few;
  for (int i = 0; i < kAxes; ++i) {
    for (size_t j = 0; j < lengths[i].size(); j += kGlance) few[i].push_back(lengths[i][j]);
  }
  double best = std::numeric_limits<double>::infinity();
  const auto enter = [&](int64_t steps) { return space_.LeastSeconds(steps) <= best; };
  space_.Sweep(few, enter, [&](const Cuts& cuts) {
    for (const Point& point : space_.BestPoints(cuts, {best})) best = std::min(best, point.rank);
  });
  keeper_.Expect(best);
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
    if (tilings <= effort_.tilings) break;
  }
  for (int i = 0; i < kAxes; ++i) {
    if (lists[i].size() > 1) PutPieces(static_cast<Axis>(i), &lists[i]);
  }
  return lists;
}

// Refine looks between, and beyond what is a piece too many or too few in a long row matters
// little.
void FamilySearch::PutPieces(Axis axis, std::vector<int64_t>* lengths) const {
  const int64_t extent = ExtentsOf(problem())[Index(axis)];
  for (const int64_t piece : pieces_[Index(axis)]) {
    for (const int64_t pieces : {1, 2, 4, 8}) {
      if (const int64_t length = Mul(piece, pieces); length < extent) lengths->push_back(length);
    }
  }
  std::sort(lengths->begin(), lengths->end(), std::greater<>());
  lengths->erase(std::unique(lengths->begin(), lengths->end()), lengths->end());
}

// The family's share of the lengths of the summed channels; all lengths of other axes.
std::vector<int64_t> FamilySearch::Restrict(Axis axis, std::vector<int64_t> lengths) const {
  const int64_t whole = ExtentsOf(problem())[Index(axis)];
  if (axis == request_.cuts) std::erase(lengths, whole);
  if (axis != SummedChannels(problem()) || axis == Axis::kN) return lengths;
  if (!cut_) return {whole};
  std::erase(lengths, whole);
  return lengths;
}

void FamilySearch::Consider(const Cuts& cuts) {
  const Wanted wanted{keeper_.Worst(), frugal_.Worst(), frugal_bytes_};
  for (const Point& point : space_.BestPoints(cuts, wanted)) {
    ++considered_;
    keeper_.Put(point);
    if (point.bytes <= frugal_bytes_) frugal_.Put(point);
  }
}

bool FamilySearch::MayBeKept(int64_t steps) const {
  return space_.LeastSeconds(steps) <= std::max(keeper_.Worst(), frugal_.Worst());
}

void FamilySearch::LookAt(const Cuts& cuts) {
  if (MayBeKept(StepsOf(cuts)) && refined_.insert(cuts).second) Consider(cuts);
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
    if (!looked_around_.insert({tiling, pairs}).second) continue;
    std::array<std::vector<const AxisCut*>, kAxes> near;
    for (int i = 0; i < kAxes; ++i) near[i] = Near(*tiling[i], lengths[i]);
    for (int i = 0; i < kAxes; ++i) {
      for (const AxisCut* one : near[i]) {
        Cuts cuts = tiling;
        cuts[i] = one;
        LookAt(cuts);
        for (int j = i + 1; pairs && j < kAxes; ++j) {
          for (const AxisCut* two : near[j]) {
            Cuts both = cuts;
            both[j] = two;
            LookAt(both);
          }
        }
      }
    }
  }
}

// Cuts of balanced lengths, and of whole pieces, between the neighbours of `cut` in a list that is
// sorted downward.
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
    for (const int64_t piece : pieces_[Index(cut.axis)]) {
      const int64_t rounded = RoundUp(lengths.back(), piece);
      if (rounded < longer) lengths.push_back(rounded);
    }
  }
  std::vector<const AxisCut*> cuts;
  for (const int64_t length : Restrict(cut.axis, std::move(lengths))) {
    const AxisCut* near = space_.Cut(cut.axis, length);
    if (near->length != cut.length) cuts.push_back(near);
  }
  return cuts;
}

void FamilySearch::Price(const Candidate& candidate) {
  const Cuts cuts = space_.CutsOf(candidate.tiling);
  const Cost cost = PriceOf(request_, candidate, space_.rates(), cuts);
  ++considered_;
  best_ = std::min(best_, RankOf(cost, cost.seconds));
  priced_.push_back({candidate, cost});
}

// Sweeping and refining meet the same tilings.
void FamilySearch::PriceOnce(const Candidate& candidate) {
  const auto known =
      std::find_if(priced_.begin(), priced_.end(), [&](const RankedCandidate& other) {
        return other.candidate.tiling.length == candidate.tiling.length &&
               other.candidate == candidate;
      });
  if (known == priced_.end()) Price(candidate);
}

void FamilySearch::PriceFinalists() {
  size_t finalists = 0;
  int64_t steps = 0;
  for (const Point& point : keeper_.Best()) {
    if (finalists >= effort_.priced && steps > effort_.priced_steps) break;
    ++finalists;
    if (point.bound > kHopeless * best_) continue;
    steps = Add(steps, StepsOf(point.cuts));
    PriceOnce(space_.CandidateOf(point));
  }
  for (const Point& point : frugal_.Best()) PriceOnce(space_.CandidateOf(point));
}

// One more slot for each ring in turn, and for all rings of two at once, of the best few.
void FamilySearch::Deepen() {
  Rank(&priced_);
  const size_t count = std::min(priced_.size(), effort_.deepened);
  for (size_t i = 0; i < count; ++i) {
    for (int ring = i < kVeryBest ? 0 : kOperands; ring <= kOperands; ++ring) {
      const Candidate deeper = Deeper(problem(), priced_[i].candidate, ring);
      if (EstimateBytes(request_, deeper) <= request_.budget) PriceOnce(deeper);
    }
  }
}

// First of each number of pieces the shortest length: a plan that is hard to beat is soon among
// them, and then bounds rule out most of the rest.
void FamilySearch::PriceAll() {
  LengthLists balanced, all;
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    balanced[i] = Restrict(axis, UsualLengths(problem(), axis, 1.0));
    all[i] = Restrict(axis, AllLengths(problem(), axis));
  }
  if (Empty(all)) return;
  PriceAll(balanced);
  PriceAll(all);
}

// Branch and bound: nothing is left out that could be among the best, which are those that rank
// within kEqual of the best price. What is left out has a lower bound above that (MayLead):
//  - a branch of the sweep, whose tilings all have as many steps as it has so far, or more, and
//    then keep the host as long, and launch as often; or whose least slots pass the budget;
//  - a tiling by its arithmetic, which no order or slots change;
//  - an order by its traffic with as many slots as there may be, which is the least;
//  - a point by its busiest engine and by its wire, below which no walk ends (RankBound).
void FamilySearch::PriceAll(const LengthLists& lengths) {
  bool late = false;
  const auto enter = [&](int64_t steps) {
    late = late || std::chrono::steady_clock::now() > request_.deadline;
    return !late && MayLead(space_.LeastSeconds(steps));
  };
  space_.Sweep(lengths, enter, [this](const Cuts& cuts) {
    for (const Point& point : space_.AllPoints(cuts, {kEqual * best_})) {
      if (MayLead(point.bound)) Price(space_.CandidateOf(point));
    }
  });
}

}  // namespace oocdnn
