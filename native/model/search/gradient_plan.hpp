// Plans of a chain's gradients: how many samples a tile has, and which engine computes each
// problem. Values and functions; no device.
#pragma once

#include <string>
#include <vector>

#include "geom/gradient_chain.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// What all problems share stands in each of their requests: budget, bounce memory, engines. What is
// inner is there as tiles.
struct GradientRequest {
  GradientChain chain;
  std::vector<PlanRequest> requests;  // by problem

  [[nodiscard]] int64_t budget() const { return requests.front().budget; }
  [[nodiscard]] int64_t bounce_bytes() const { return requests.front().bounce_bytes; }
  [[nodiscard]] int64_t samples() const { return requests.front().problem.shape.n; }
};

struct GradientCandidate {
  int64_t samples = 1;      // of a tile; the first has fewer where they do not divide the batch
  std::vector<int> engine;  // by problem, an index into PlanRequest::engines
  int ring = 1;             // slots of what is the caller's and moves with the tiles
};

// A problem's part in the candidate.
Candidate CandidateOf(const GradientRequest& request, const GradientCandidate& candidate,
                      size_t problem);

// Slot bytes, from dense tiles, without workspace. Of what problems share one tile counts.
int64_t EstimateBytes(const GradientRequest& request, const GradientCandidate& candidate);

// The sum of what each problem takes: the busiest of the three engines, and of the others one
// tile's share before and after it.
Cost PriceOf(const GradientRequest& request, const GradientCandidate& candidate,
             const Profile& profile);

struct RankedGradients {
  GradientCandidate candidate;
  Cost cost;
  bool least = false;  // tiles of one sample, which are a last resort
};

// Candidates that fit by estimate, the fastest first; at the end, whatever they take, the least:
// with the fastest engines, and with each engine alone.
// kUnsupported where a problem has no engine, or where bits must not depend on the budget.
Result<std::vector<RankedGradients>> SearchGradients(const GradientRequest& request,
                                                     const Profile& profile);

// "N 8 x 32, engines ..."
std::string Describe(const GradientRequest& request, const GradientCandidate& candidate);

}  // namespace oocdnn
