#include "geom/own_rows.hpp"

#include <algorithm>

namespace oocdnn {

// Tiles begin at whole strides of dx, and row p of dy is that one's where dx row p * stride is:
// with pads below the filter's reach it meets a row nearby, so that the tile's box has it.
Box OwnRowsOf(const Problem& problem, const Tiling& tiling, const TileIndex& index) {
  Box box = RegionOf(problem, tiling, Operand::kY, index);
  if (problem.direction != Direction::kBackwardData) return box;
  for (int s = 0; s < 3; ++s) {
    if (!tiling.padding_as_data[s]) continue;  // one tile has them all
    const auto axis = static_cast<Axis>(Index(Axis::kD) + s);
    const int64_t number = index[Index(axis)], rows = problem.shape.out[s];
    const auto first_of = [&](int64_t tile) {
      return tile < tiling.Count(axis)
                 ? std::min(tiling.Begin(axis, tile) / problem.shape.stride[s], rows)
                 : rows;
    };
    box.valid_begin[3 + s] = first_of(number);
    box.valid_end[3 + s] = first_of(number + 1);
  }
  return box;
}

}  // namespace oocdnn
