// What rows of dy are restored from (see Problem::restores): arithmetic of one axis of a cut. What
// is in a range depends on where that begins alone, so that neighbours can hand on what they share.
#pragma once

#include "geom/problem.hpp"

namespace oocdnn {

// Rows of a tensor from `begin` on, which may be negative.
struct RowRange {
  int64_t begin = 0, rows = 0;
};

// Of dz: as many as have windows that reach so many rows of dy, wherever these begin.
RowRange RestoredFrom(const Problem& problem, int axis, int64_t y_begin, int64_t y_rows);
// Of what was saved, with no rows where that is nothing: along W bytes, of whole units.
RowRange BitsRestoredFrom(const Problem& problem, int axis, int64_t y_begin, int64_t y_rows);

}  // namespace oocdnn
