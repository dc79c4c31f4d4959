// The order in which priced candidates are offered.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Candidates of one engine. `uncut` and `cut` differ in whether the summed channels (C forward, K
// backward data) are cut, which makes partial sums in the accumulator's type.
struct Families {
  std::optional<RankedCandidate> whole;  // one tile, where it fits and is best
  std::vector<RankedCandidate> uncut, cut;
  // Whether partial sums are preferred.
  [[nodiscard]] bool CutLeads() const;
  // Of what is offered first; kNever where there is nothing.
  [[nodiscard]] double Seconds() const;
};
constexpr double kNever = std::numeric_limits<double>::infinity();

// How much faster a plan with partial sums must be than one without before it is preferred.
constexpr double kPartialSumsGain = 1.25;

// Candidates whose ranks are within this factor of the best are taken to be equally fast.
constexpr double kEqual = 1.01;

// By RankOf; among those within one percent of each other, first those that do not wait (see Cost),
// which bear with arithmetic slower than predicted, then those without gaps, and then fewer device
// bytes.
void Rank(std::vector<RankedCandidate>* candidates);

// A candidate of at most this share of the budget is frugal: it still fits where the engine's exact
// tiles and workspace turn out larger than estimated.
constexpr double kFrugalShare = 0.6;

// The `best` to offer: the whole; then the family that wins, a frugal
// candidate among it; then one of the other family, so that an engine that refuses partial sums
// still has something to run.
std::vector<RankedCandidate> Merge(Families families, int64_t budget, int best);

}  // namespace oocdnn
