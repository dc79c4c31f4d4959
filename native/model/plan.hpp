// Plan: which tiles, in which order, on which engine, and why. Values and functions; no device.
//
// The search prices every candidate with one cost model (cost.hpp) and returns the best few in
// order. Exact tile and workspace bytes are known only once an engine has been prepared, so the
// library prepares them in that order and books the first that fits.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "geom/parts.hpp"
#include "geom/placement.hpp"
#include "geom/schedule.hpp"
#include "geom/tile_op.hpp"
#include "model/profile/profile.hpp"

namespace oocdnn {

using Pinned = std::array<bool, kOperands>;

struct Candidate {
  Tiling tiling;
  LoopOrder order{};
  Depths depths{};
  int engine = 0;   // index into PlanRequest::engines
  Pinned pinned{};  // operands in pageable memory that are pinned for the call, and not staged

  bool operator==(const Candidate&) const = default;
};

// The price of a candidate.
struct Cost {
  double seconds = 0.0;  // length of the pipeline
  // Busy time of each engine.
  double fetch_seconds = 0.0, compute_seconds = 0.0, drain_seconds = 0.0;
  int64_t bytes_in = 0, bytes_out = 0;  // that cross toward and from the device
  int64_t device_bytes = 0;             // slots, estimated from dense tiles
  int64_t steps = 0;
  bool gaps = false;   // what crosses the wire has gaps in the caller's memory; rows between them
                       // disturb each other in the two directions
  bool waits = false;  // an operand that moves again and again has one slot, which cannot do so
                       // beside the arithmetic
};

// Whether copies between the operand and tiles use the wire.
constexpr bool CrossesWire(Tier tier) { return tier != Tier::kDevice && tier != Tier::kTile; }
using InPlace = std::array<bool, kOperands>;
// Whether all operands are on the device.
bool OnDevice(const Problem& problem, const Tiers& tiers);

constexpr int64_t kNoLimit = INT64_MAX;

struct PlanRequest {
  Problem problem;
  Tiers tiers = AllOf(Tier::kPinned);
  // Operands on the device, aligned as tiles must be, of which tiles may be parts where they lie.
  InPlace in_place{};
  int64_t budget = 0;               // device bytes
  int64_t bounce_bytes = 0;         // of them, each of the two copying streams has beside tiles
  int64_t workspace = kNoLimit;     // of them, the most for an engine's workspace
  int64_t pin_bytes = 0;            // of the host, the most that is pinned for a call
  std::vector<EngineInfo> engines;  // in order of preference; empty names are skipped
  bool reproducible = false;        // only invariant engines; bits must not depend on the budget
  bool first_choice = false;        // see TileOp
  bool may_compile = false;         // the same
  bool fuses = false;               // engines do the epilogue that they can, see Finishes
  bool exhaustive = false;          // not only the usual tile lengths and loop orders, but all
  bool measure = false;             // the library times the best few on the device
  bool gradual = false;             // or fewer, until calls have taken long enough
  std::optional<Axis> cuts;         // only plans are searched for that cut this axis
  // An exhaustive search ends then, with the best so far, and no more plans are timed.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  int best = 8;  // how many candidates to return (a few more for many engines)
};

// With the budget that is left to tiles, which the search is asked for.
inline PlanRequest WithoutBounce(PlanRequest request) {
  request.budget -= 2 * request.bounce_bytes;
  return request;
}

struct RankedCandidate {
  Candidate candidate;
  Cost cost;
};

// How much slower an engine that is preferred may be than another.
constexpr double kEngineGain = 1.02;

// The engines come by their predicted times; those within kEngineGain of each other in the order
// of the request. The first has most of the places, each further one two, so that a refusal of
// Prepare leaves something to run; one whose floor says that it cannot come first is looked at
// briefly, and what it offers may be some percent slower than its best. Within an engine come the
// fastest, and among those within one percent of each other those that do not wait, those without
// gaps, then the smaller (on shared engines, before all, the whole problem in one tile if it fits);
// then one that cuts the summed channels (C forward, K backward data) or does not, whichever the
// others do. Such a cut leads only where it is predicted a quarter faster.
struct PlanSearch {
  std::vector<RankedCandidate> ranked;  // best first, never empty
  std::vector<std::string> refused;     // a sentence for each family that was ruled out, and why
  int64_t considered = 0;               // candidates priced
  double seconds = 0.0;                 // spent searching
};

// kUnsupported where bits must not depend on the budget and sums that come along would have theirs
// do so.
Status CheckReproducible(const PlanRequest& request);

// Operands are staged or pinned for the call, whichever ends sooner (model/price/pins.hpp).
// kOutOfMemory (detail(): the least budget that works) where nothing fits; kUnsupported where no
// engine does.
Result<PlanSearch> Search(const PlanRequest& request, const Profile& profile);

// The problem in one tile, one slot of each operand.
Candidate WholeCandidate(const PlanRequest& request, int engine);
// The batch in parts of so many samples, the first of fewer where they do not divide it (its short
// tile); one slot of each operand.
Candidate DividedCandidate(const PlanRequest& request, int engine, int64_t samples);
// The smallest tiles that the engine can be asked for, one slot of each.
Candidate LeastCandidate(const PlanRequest& request, int engine, const Profile& profile);

// Slot bytes of one candidate, from dense tiles in the types that the engine is expected to use
// (`AccumulatorOf` for split reductions and finishing passes), each rounded up to 64 bytes. What is
// itself the tile has none.
int64_t EstimateBytes(const PlanRequest& request, const Candidate& candidate);

// Of a budget, what measuring and trying engines out may take: the code that a library loads for it
// lies on the device too (cuDNN's 24 MiB, on an H200).
constexpr int64_t BesideCode(int64_t budget) {
  return budget - std::min(budget / 8, int64_t{32} << 20);
}

// Length of the pipeline by walking the schedule: fetch, compute and drain engines, ring slots,
// rolling window, residency. Bytes and busy times are exact always; of a long schedule, only the
// waits between the engines are taken from its first steps.
// What the candidate pins for the call is behind the wire then, and pinning it comes before all
// else. `run_seconds`: of one usual tile's convolution, and of what comes along with it, where they
// were measured; 0: as the profile says.
Cost PriceOf(const PlanRequest& request, const Candidate& candidate, const Profile& profile,
             double run_seconds = 0.0);

// "N 8 x 2 | H 224 / 9 -> 25 ..., order N H C, x 3 slots of 1.2 MiB, w resident ..."
std::string Describe(const PlanRequest& request, const Candidate& candidate);

// The TileOp that the candidate's engine is prepared for, and that of one part of a tile's work; of
// short tiles the shape alone differs.
TileOp OpOf(const PlanRequest& request, const Candidate& candidate);
TileOp OpOf(const PlanRequest& request, const Candidate& candidate, const Part& part);

}  // namespace oocdnn
