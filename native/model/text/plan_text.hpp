// Candidates as text: what a search found, kept and used again, or written by hand.
//
//   cudnn-nchw n2 g1 k64 c64 d1 h56 w224 order gknhwc slots 2,1,3 taper n1 pin w
//
// The engine; the length of a tile on each axis; the axes that are cut, outermost first ("-": none
// is); the slots of x, w, y and, where the problem has them, bias, scale, residual and old y, or
// one number for all; of a tapered tiling, the axis and the length of its short tiles; and the
// operands that are pinned for the call where they are in pageable memory. What is left out: any
// engine, axes that are not cut, the loop order that needs the fewest accumulators, two slots, no
// taper, nothing pinned.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

std::string ToText(const PlanRequest& request, const Candidate& candidate);

// Of the operands that the candidate pins for the call.
std::vector<std::string> PinnedNames(const Problem& problem, const Candidate& candidate);

// On the engine that is predicted to be the fastest, where the text names none. kInvalidProblem,
// with the word that is wrong, for what is no plan of this request; whether it fits is found out by
// booking it.
Result<RankedCandidate> ParsePlan(const PlanRequest& request, const Profile& profile,
                                  std::string_view text);

}  // namespace oocdnn
