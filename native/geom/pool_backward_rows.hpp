// The rows of dz and of saved bits that rows of dy depend on (see Problem::restores), on one axis.
// The begin of a range depends on the begin of the rows alone, so that adjacent tiles can share
// rows.
#pragma once

#include "geom/problem.hpp"

namespace oocdnn {

// Rows of a tensor from `begin` on, which may be negative.
struct RowRange {
  int64_t begin = 0, rows = 0;
};

// The rows of dz whose windows reach `y_rows` rows of dy; their number does not depend on
// `y_begin`.
RowRange PoolBackwardRows(const Problem& problem, int axis, int64_t y_begin, int64_t y_rows);
// The rows of saved bits, none if nothing was saved; along W in bytes of whole units.
RowRange PoolBackwardBits(const Problem& problem, int axis, int64_t y_begin, int64_t y_rows);

}  // namespace oocdnn
