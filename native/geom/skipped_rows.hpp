// Rows of x that the stride of a convolution skips.
#pragma once

#include "geom/placement.hpp"

namespace oocdnn {

// The problem that is planned and run in place of a call's: the same results from the rows of x
// that are read, with an x of larger strides in memory. Along an axis with one tap and no padding,
// forward and gradients of the filter read every stride-th row only. The given problem where all
// rows are read, where rows are so short that copying some takes no less time than copying all, and
// where x is on the device, which may use it in place.
Problem WithoutSkippedRows(const Problem& problem, const Tiers& tiers);

}  // namespace oocdnn
