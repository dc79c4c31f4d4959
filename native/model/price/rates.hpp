// The part of a profile that the prices of a request rest on.
#pragma once

#include "model/plan.hpp"

namespace oocdnn {

// A profile by which every candidate of the request has the same price, and all else is left out:
// what is measured of other kinds of arithmetic changes nothing in it.
Profile RatesOf(const Profile& profile, const PlanRequest& request);

}  // namespace oocdnn
