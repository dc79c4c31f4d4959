// Plans of programs: which tiles pass through the nodes, and which engine computes each node.
// Values and functions; no device.
#pragma once

#include <string>
#include <vector>

#include "geom/program.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// Budget, bounce memory and engines are the same in the requests of all nodes. Operands that a node
// does not fetch itself (Program::PassedTo) are in the tier kTile.
struct ProgramRequest {
  Program program;
  std::vector<PlanRequest> nodes;
  bool sweeps = true;  // tiles may keep rows for each other

  [[nodiscard]] int64_t budget() const { return nodes.front().budget; }
  [[nodiscard]] int64_t bounce_bytes() const { return nodes.front().bounce_bytes; }
  [[nodiscard]] int64_t samples() const { return program.front().shape.n; }
};

struct ProgramCandidate {
  // By rows: the tiling of the last node, which cuts the batch and the rows (ChainTiles). By
  // samples: the tiling of the first node, which cuts the batch.
  Tiling tiling;
  std::vector<int> engine;  // by node, an index into PlanRequest::engines
  int ring = 1;             // slots of each tensor that is the caller's and moves with the tiles
  // Along the last axis that is cut, tiles keep shared rows for the next tile instead of computing
  // them again.
  bool sweeps = false;

  [[nodiscard]] int64_t samples() const { return tiling.length[Index(Axis::kN)]; }
  bool operator==(const ProgramCandidate&) const = default;
};

struct RankedProgram {
  ProgramCandidate candidate;
  Cost cost;
  bool least = false;  // a last resort, which may not fit
};

// A node's part in the candidate. Where rows are cut, its tiling is right in its batch alone.
Candidate CandidateOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                      size_t node);

// Slot bytes, from dense tiles: regions that nodes share count once. Without workspace and, where
// the batch alone is cut, without operands that may be used in place.
int64_t EstimateBytes(const ProgramRequest& request, const ProgramCandidate& candidate);

// Candidates that fit by estimate, the fastest first. kOutOfMemory (detail(): the least bytes)
// where none fits, kUnsupported where a node has no engine.
Result<std::vector<RankedProgram>> SearchProgram(const ProgramRequest& request,
                                                 const Profile& profile);

// "N 8 x 32, engines ..."
std::string Describe(const ProgramRequest& request, const ProgramCandidate& candidate);

}  // namespace oocdnn
