// The parts of the direct engine: one executable for each kind of direction.
//
// All take pad 0 only (padding is data), compute in float (double for f64), and give every output
// element a sum of products in a fixed order, in the blocks of geom/sum_blocks.hpp. So cutting an
// output axis never changes bits, and neither does cutting the reduction between blocks (groups of
// blocks: forward, backward data) where the pieces come in the order of the sum:
//
//   forward c t r s;  backward data k t r s;  backward filter n o p q;  backward bias n o p q
//
// A reduction of several axes is cut in that order when every axis inside the one that is cut is
// whole, or every axis outside of it has one index per tile.
#pragma once

#include <memory>

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

const EngineInfo& DirectInfo();

// One channel in and one out per group, in many groups.
bool IsDepthwise(const ConvShape& shape);

// Forward and backward data, and the same for what IsDepthwise.
Result<std::unique_ptr<CpuExecutable>> PrepareDirectGather(const TileOp& op, int threads);
Result<std::unique_ptr<CpuExecutable>> PrepareDirectDepthwise(const TileOp& op);
Result<std::unique_ptr<CpuExecutable>> PrepareDirectFilter(const TileOp& op);
// The tiles of the gradients of filter and bias are f64 for every dtype: they are sums over all
// positions. Bias gradients have no products and no blocks.
Result<std::unique_ptr<CpuExecutable>> PrepareDirectBias(const TileOp& op);

}  // namespace oocdnn::cpu
