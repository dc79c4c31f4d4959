#include "geom/pool_backward_rows.hpp"

#include "base/checked.hpp"

namespace oocdnn {

RowRange PoolBackwardRows(const Problem& problem, int axis, int64_t y_begin, int64_t y_rows) {
  const int64_t window = problem.pool.window[axis], stride = problem.pool.stride[axis];
  const int64_t before = y_begin + problem.pool.pad_before[axis] - window;
  return {FloorDiv(before, stride) + 1, FloorDiv(y_rows + window - 2, stride) + 1};
}

RowRange PoolBackwardBits(const Problem& problem, int axis, int64_t y_begin, int64_t y_rows) {
  const Saving saving = problem.saving();
  if (saving.what == Saved::kNothing) return {};
  const bool winners = saving.what == Saved::kWinners;
  const RowRange elements =
      winners ? PoolBackwardRows(problem, axis, y_begin, y_rows) : RowRange{y_begin, y_rows};
  if (axis != 2) return elements;
  const int64_t units = FloorDiv(elements.rows + 2 * (kSavedUnit - 1), kSavedUnit);
  return {FloorDiv(elements.begin, kSavedUnit) * saving.bits, units * saving.bits};
}

}  // namespace oocdnn
