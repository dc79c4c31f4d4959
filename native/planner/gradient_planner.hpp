// Plans for the gradients of whole chains, by tiles of the batch.
#pragma once

#include "exec/gradient_booking.hpp"

namespace oocdnn {

struct GradientPlan {
  GradientBooking booking;
  double seconds = 0.0;  // predicted
};

// Prepares candidates in order until one fits: without an engine that refuses once more.
// kOutOfMemory (detail(): the least budget that works) where not even one sample does. `prepared`
// counts engine preparations.
Result<GradientPlan> PlanGradients(Device& device, GradientRequest request, const Profile& profile,
                                   int64_t* prepared);

// What they are predicted to take, by estimate: nothing is prepared. A single problem is a call of
// its own. kOutOfMemory where not even one sample fits.
Result<double> PriceGradients(const GradientRequest& request, const Profile& profile);

}  // namespace oocdnn
