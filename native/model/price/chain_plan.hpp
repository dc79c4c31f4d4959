// Plans of programs whose tiles are ranges of samples and rows, as those of chains are.
#pragma once

#include <memory>
#include <vector>

#include "geom/chain.hpp"
#include "model/price/program_plan.hpp"

namespace oocdnn {

ChainTiles TilesOf(const ProgramRequest& request, const ProgramCandidate& candidate);
// With halos of the same chain, which others share.
ChainTiles TilesOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                   std::shared_ptr<ChainHalos> halos);

// See CandidateOf.
Candidate CandidateByRows(const ProgramRequest& request, const ProgramCandidate& candidate,
                          size_t link);

// Whether a link's x is copied from the z before it, as its engine's tiles are not such as a
// finishing pass writes; by what is known of the engine.
bool Relays(const PlanRequest& next, int engine);

// Whether a link's engine writes z itself, which is y then: there is no other tile of it.
bool WritesZ(const ProgramRequest& request, const ProgramCandidate& candidate,
             const ChainTiles& tiles, size_t link);

// How a link comes to its residual.
enum class Residual {
  kNone,
  kFetched,  // from the caller's memory
  kCopied,   // from a tile that another link has
  kShared,   // it is such a tile, as it lies
};

// By what is known of the engines: from what an earlier link has written, or from the tile of x, if
// that is not used in place and its engine's tiles can be read; and else fetched.
Residual ResidualOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                    const ChainTiles& tiles, size_t link);

// See EstimateBytes; `tiles` are the candidate's.
int64_t ChainBytes(const ProgramRequest& request, const ProgramCandidate& candidate,
                   const ChainTiles& tiles);

// See SearchProgram. Each candidate occurs once; of many the most promising are priced, and few
// after the request's deadline.
Result<std::vector<RankedProgram>> SearchChain(const ProgramRequest& request,
                                               const Profile& profile);

}  // namespace oocdnn
