// Rows of x that the stride of a convolution skips.
#pragma once

#include "geom/problem.hpp"

namespace oocdnn {

// The same results from the rows of x that are read, as a problem whose x has larger strides in
// memory: along an axis with one tap and no padding, forward and gradients of the filter read every
// stride-th row only. The given problem where all rows are read, or where from one row to the next
// are fewer than `least_bytes`: then copying some takes no less time than copying all.
Problem WithoutSkippedRows(const Problem& problem, int64_t least_bytes);

}  // namespace oocdnn
