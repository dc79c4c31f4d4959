// Axes: which axis of a tiling moves which dimension of an operand's boxes.
#pragma once

#include <array>

#include "geom/tiling.hpp"

namespace oocdnn {

constexpr int kNoAxis = kAxes;  // in the place of an axis: none moves a filter's taps

// Of each dimension.
const std::array<int, 6>& AxesOf(Direction direction, Operand operand);

}  // namespace oocdnn
