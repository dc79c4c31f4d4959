// ChainBooking: what a plan of a chain becomes once exact bytes are known; it can be run any number
// of times.
//
// Links take turns, so they share what does not outlive one: sums, residuals that are copied, and
// the workspace lie in one region each; so do tensors between links, of which those are there at
// the same time that later links add. Filters, biases and scales stay for the whole run.
#pragma once

#include <vector>

#include "exec/booking.hpp"
#include "exec/walk.hpp"
#include "model/price/chain_plan.hpp"

namespace oocdnn {

struct ChainBooking {
  ChainTiles tiles;
  int ring = 1;  // slots of x and of the last result
  std::vector<Booking> links;
  int64_t bytes = 0;  // of the arena, exactly
};

// Prepares the candidate's engines and books offsets. kUnsupported where an engine refuses
// (detail(): the number of its link, kShortTiles or kSweeps). kOutOfMemory where an engine has not
// the workspace that it needs, or where the exact bytes (which detail() then is) pass the request's
// budget.
Result<ChainBooking> BookChain(Device& device, const ChainRequest& request,
                               const ChainCandidate& candidate);

}  // namespace oocdnn
