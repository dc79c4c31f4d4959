// Plans of programs whose tiles are ranges of samples, as those of a chain's gradients are.
#pragma once

#include <vector>

#include "model/price/program_plan.hpp"

namespace oocdnn {

// See CandidateOf.
Candidate CandidateBySamples(const ProgramRequest& request, const ProgramCandidate& candidate,
                             size_t node);

// See EstimateBytes. Of a tensor that nodes share one tile counts.
int64_t GradientBytes(const ProgramRequest& request, const ProgramCandidate& candidate);

// The sum of the nodes' costs: the busiest of the three engines, and of the others one tile's share
// before and after it.
Cost PriceOf(const ProgramRequest& request, const ProgramCandidate& candidate,
             const Profile& profile);

// See SearchProgram. At the end of the candidates, whatever they take, are those with tiles of one
// sample: with the fastest engines, and with each engine alone. kUnsupported where bits must not
// depend on the budget.
Result<std::vector<RankedProgram>> SearchGradients(const ProgramRequest& request,
                                                   const Profile& profile);

}  // namespace oocdnn
