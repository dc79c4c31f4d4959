// ProgramBooking: a candidate of a program whose engines have been prepared, with an offset for
// every slot. It can be run any number of times.
//
// Nodes take turns, so they share the memory of whatever does not outlive a turn: sums, copies of
// tiles in another layout, and the workspace. Tensors between nodes have memory from the node that
// writes them to the last one that reads them. Filters, biases and scales stay for the whole run.
#pragma once

#include <optional>
#include <vector>

#include "exec/booking.hpp"
#include "geom/chain.hpp"
#include "memory/arena.hpp"
#include "model/price/program_plan.hpp"

namespace oocdnn {

struct ProgramBooking {
  std::vector<Booking> nodes;
  std::optional<ChainTiles> tiles;  // in a traversal by rows; else nodes have their own schedules
  int ring = 1;                     // slots of x and of the last result, where there are `tiles`
  int64_t bytes = 0;                // of the arena, exactly

  [[nodiscard]] const Tiling& tiling() const {
    return tiles ? tiles->tiling() : nodes.front().candidate.tiling;
  }
  [[nodiscard]] int64_t Steps() const { return tiling().Tiles(); }
};

// Prepares the candidate's engines and books offsets. kUnsupported where an engine refuses
// (detail(): the number of its node, kShortTiles or kSweeps). kOutOfMemory where an engine has not
// the workspace that it needs, or where the exact bytes (which detail() then is) pass the request's
// budget.
Result<ProgramBooking> Book(Device& device, const ProgramRequest& request,
                            const ProgramCandidate& candidate);

// Parts of Book, by the program's traversal; the bytes may pass the budget.
Result<ProgramBooking> BookChain(Device& device, const ProgramRequest& request,
                                 const ProgramCandidate& candidate);
Result<ProgramBooking> BookGradients(Device& device, const ProgramRequest& request,
                                     const ProgramCandidate& candidate);

// A node with its engines and no slots; `estimate`: bytes of all slots of the program.
Result<Booking> PrepareNode(Device& device, const ProgramRequest& request, size_t node,
                            const Candidate& candidate, const ShapeOfTiles& shape_of,
                            int64_t estimate);
// The bounce memory that all nodes share.
void PlaceBounce(int64_t bytes, Offsets* offsets, std::vector<Booking>* nodes);

}  // namespace oocdnn
