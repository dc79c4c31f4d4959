// GradientBooking: what a plan of a chain's gradients becomes once exact bytes are known; it can be
// run any number of times.
//
// Problems take turns, so they share what does not outlive one: sums of y and what dy is restored
// to, tiles of what is shared that lie otherwise, and the workspace lie in one region with what
// problems leave for each other, each for as long as it is needed. Filters, biases and sums of
// gradients stay for the whole run.
#pragma once

#include <vector>

#include "exec/booking.hpp"
#include "model/search/gradient_plan.hpp"

namespace oocdnn {

struct GradientBooking {
  std::vector<Booking> problems;
  int64_t bytes = 0;  // of the arena, exactly

  [[nodiscard]] int64_t Steps() const { return problems.front().candidate.tiling.Tiles(); }
};

// Prepares the candidate's engines and books offsets. kUnsupported where an engine refuses
// (detail(): the number of its problem, or kShortTiles). kOutOfMemory where an engine has not the
// workspace that it needs, or where the exact bytes (which detail() then is) pass the request's
// budget.
Result<GradientBooking> BookGradients(Device& device, const GradientRequest& request,
                                      const GradientCandidate& candidate);

}  // namespace oocdnn
