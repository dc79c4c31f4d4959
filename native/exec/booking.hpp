// Booking: a candidate whose engine has been prepared, with an offset for every slot. What a plan
// becomes once exact bytes are known; it can be run any number of times.
//
// Operands on the device need no slots where a tile is a part of the caller's tensor as it lies
// there: the whole of it, or some of its samples (a divided batch).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// Tiles of one shape: what computes them, and how they lie in the slots of each used operand.
struct PreparedTiles {
  std::shared_ptr<Executable> executable;
  std::array<TileLayout, kOperands> layout;
};

struct Booking {
  Problem problem;
  Candidate candidate;
  PreparedTiles usual, ends;                         // `ends`: the short tiles of a taper, if any
  std::array<std::vector<int64_t>, kOperands> slot;  // offsets into the arena
  InPlace in_place{};     // tiles are parts of the caller's own memory, and there are no slots
  int64_t workspace = 0;  // offset
  std::array<int64_t, 2> bounce{};  // offsets: for fetches, for drains
  int64_t bounce_bytes = 0;         // of each
  int64_t bytes = 0;                // of the arena, exactly

  // Of the workspace, which tiles of both shapes share.
  [[nodiscard]] int64_t WorkspaceBytes() const;
  [[nodiscard]] const PreparedTiles& Of(const TileIndex& index) const {
    return candidate.tiling.IsShort(index) ? ends : usual;
  }
};

// Prepares the candidate's engine, for each shape of tiles, and books offsets. kUnsupported where
// the engine refuses, wants more workspace than the request allows, or what both shapes use in two
// layouts;
// kOutOfMemory (detail(): the exact bytes) where the exact bytes pass `budget`. The request's own
// budget may be smaller: that is what the search was told to aim at. Of a candidate that cuts
// nothing but the batch, those operands are used in place that may be and whose tiles would lie
// alike.
Result<Booking> Book(Device& device, const PlanRequest& request, const Candidate& candidate,
                     int64_t budget);

}  // namespace oocdnn
