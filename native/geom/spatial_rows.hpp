// Rows of x and dy on one spatial axis that belong together: the arithmetic of halos, strides and
// padding that tiles and shares have in common.
#pragma once

#include "geom/problem.hpp"

namespace oocdnn {

// Rows of an operand in tensor coordinates: where its box begins, and which of its rows exist.
struct SpatialRows {
  int64_t begin = 0, valid_begin = 0, valid_end = 0;
};

// The rows of x that those of y read, from `y_begin` on.
SpatialRows RowsRead(const ConvShape& shape, int s, int64_t y_begin, int64_t y_rows);
// The first row of dy that can reach a row of dx; it may be negative.
int64_t FirstRow(const ConvShape& shape, int s, int64_t dx_row);

}  // namespace oocdnn
