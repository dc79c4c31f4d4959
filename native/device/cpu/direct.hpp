// The parts of the direct engine: one executable for each kind of direction.
//
// All take pad 0 only (padding is data), compute in float (double for f64), and give every output
// element one chain of multiply-adds in a fixed order, which continues from the tile's content when
// asked to accumulate. So cutting an output axis never changes bits, and neither does cutting the
// reduction where the pieces come in the order of the chain:
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
// The bias gradient's tile is f64 for every dtype: its chains are long, and have no products.
Result<std::unique_ptr<CpuExecutable>> PrepareDirectBias(const TileOp& op);

}  // namespace oocdnn::cpu
