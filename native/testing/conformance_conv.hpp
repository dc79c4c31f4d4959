// One convolution of a whole tile on an engine, as the cases about engines need it.
#pragma once

#include <memory>
#include <string>

#include "testing/conformance_reference.hpp"
#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {

constexpr Direction kAllDirections[] = {Direction::kForward, Direction::kBackwardData,
                                        Direction::kBackwardFilter, Direction::kBackwardBias};

// The shapes of the suite: 1-D to 3-D, groups, depthwise, strides, dilation, pads, odd channels.
const std::vector<ConvShape>& Shapes();
// Those with few multiplications and every feature once.
const std::vector<ConvShape>& FewShapes();

// `shape` as an engine takes it: without pads where it asks for padding as data. Nothing is left
// where the filter does not fit then.
bool Fits(const EngineInfo& engine, ConvShape* shape);

std::string Describe(const EngineInfo& engine, const TileOp& op);

// Inputs of the operation: whole numbers, or reals of its dtype.
enum class Filling : int { kIntegers = 0, kReals = 1 };
Operands MakeInputs(const TileOp& op, Filling filling, Random& random);

// Prepares the operation and checks what the executable states about its layouts. A refusal is
// kUnsupported; one without a reason, or another error, fails the case.
Result<std::unique_ptr<Executable>> PrepareChecked(Device& device, int engine, TileOp op);

// Runs once from inputs to output. Where `old` is not null the output tile starts with it and the
// run adds to it; else it starts with NaN.
Result<Tensor> RunOnce(Device& device, Executable& executable, const TileOp& op,
                       const Operands& inputs, const Tensor* old = nullptr);

// What comes out, against the reference: equal where the engine is exact and the inputs are whole
// numbers, else within the bound of rounding. `old` as above.
Status ExpectReference(const TileOp& op, const Executable& executable, const Operands& inputs,
                       Filling filling, const Tensor& seen, const Tensor* old = nullptr);

}  // namespace oocdnn::testing
