// Plans of chains: how many samples a tile has, and rows where a sample does not fit, and which
// engine computes each link. Values and functions; no device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "geom/chain.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// What all links share stands in each of them: budget, bounce memory, engines. What is between
// links has no home outside.
struct ChainRequest {
  Chain chain;
  std::vector<PlanRequest> links;
  bool sweeps = true;  // tiles may keep rows for each other

  [[nodiscard]] int64_t budget() const { return links.front().budget; }
  [[nodiscard]] int64_t bounce_bytes() const { return links.front().bounce_bytes; }
};

struct ChainCandidate {
  Tiling tiling;            // of the last link: its batch and its rows are cut, see ChainTiles
  std::vector<int> engine;  // by link, an index into PlanRequest::engines
  int ring = 1;             // slots of x and of the last result
  // What tiles share along the last axis that is cut is kept from one to the next, not computed
  // again.
  bool sweeps = false;

  bool operator==(const ChainCandidate&) const = default;
};

ChainTiles TilesOf(const ChainRequest& request, const ChainCandidate& candidate);
// With halos of the same chain, which others share.
ChainTiles TilesOf(const ChainRequest& request, const ChainCandidate& candidate,
                   std::shared_ptr<ChainHalos> halos);

// A link's part in the candidate. Where rows are cut, its tiling is right in its batch alone.
Candidate LinkOf(const ChainRequest& request, const ChainCandidate& candidate, size_t link);

// Whether a link's x is copied from the z before it, as its engine's tiles are not such as a
// finishing pass writes; by what is known of the engine.
bool Relays(const PlanRequest& next, int engine);

// Whether a link's engine writes z itself, which is y then: there is no other tile of it.
bool WritesZ(const ChainRequest& request, const ChainCandidate& candidate, const ChainTiles& tiles,
             size_t link);

// How a link comes to its residual.
enum class Residual {
  kNone,
  kFetched,  // from the caller's memory
  kCopied,   // from a tile that another link has
  kShared,   // it is such a tile, as it lies
};

// By what is known of the engines: from what an earlier link has written, or from the tile of x, if
// that is not used in place and its engine's tiles can be read; and else fetched.
Residual ResidualOf(const ChainRequest& request, const ChainCandidate& candidate,
                    const ChainTiles& tiles, size_t link);

// Slot bytes, from dense tiles: regions that links share count once. Without workspace, and where
// the batch alone is cut without what may be used in place.
int64_t EstimateBytes(const ChainRequest& request, const ChainCandidate& candidate);
int64_t EstimateBytes(const ChainRequest& request, const ChainCandidate& candidate,
                      const ChainTiles& tiles);

struct RankedChain {
  ChainCandidate candidate;
  Cost cost;
};

// Candidates that fit by estimate, the fastest first, each of them once. Of many the most promising
// are priced, and few after the request's deadline. kOutOfMemory (detail(): the least bytes) where
// none fits, kUnsupported where a link has no engine.
Result<std::vector<RankedChain>> SearchChain(const ChainRequest& request, const Profile& profile);

// "N 8 x 32, engines ..."
std::string Describe(const ChainRequest& request, const ChainCandidate& candidate);

}  // namespace oocdnn
