// A convolution cut into tiles, run tile by tile: for what engines claim about tiles.
#pragma once

#include "geom/tiling.hpp"
#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {

// A dense problem with this shape, as Problem sees it.
Problem MakeProblem(Direction direction, const ConvShape& shape, DType dtype);
// The operation that each tile of the tiling is.
TileOp TileOpOf(const Problem& problem, const Tiling& tiling);
// Inputs of the whole problem.
Operands MakeInputs(const Problem& problem, Filling filling, Random& random);
// Cuts at random all axes that the output has, into three pieces at most; reductions stay whole.
Tiling RandomTiling(const Problem& problem, bool padding_as_data, Random& random);
// Cuts one axis that is summed over, and all before it into single steps, such that sums keep their
// order and blocks; the whole tiling where no axis can be cut.
Tiling RandomSumTiling(const Problem& problem, bool padding_as_data, Random& random);

// Fetches, runs and drains every tile of a tiling that leaves reductions whole, or else cuts
// nothing but reductions.
Result<Tensor> RunTiled(Device& device, Executable& executable, const Problem& problem,
                        const Tiling& tiling, const Operands& inputs);

std::string Text(const Tiling& tiling);

}  // namespace oocdnn::testing
