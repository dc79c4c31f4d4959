// The convolution of one tile as an operation graph of cuDNN's.
#pragma once

#include <array>
#include <vector>

#include "device/cuda/cudnn_descriptor.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

// How the channels of a tile lie: side by side (NHWC), or each as a plane of its own (NCHW).
enum class ChannelOrder : int { kInnermost = 0, kPlanes = 1 };
const char* Name(ChannelOrder order);

constexpr int kTensors = 4;  // kX, kW, kY and, of an epilogue, kBias, by their operand's index
using TensorLayouts = std::array<TileLayout, kTensors>;

// What cuDNN is asked for. `adds`: the result is added to what the output tile holds. `epilogue`:
// of bias and activation, what becomes of the sums, in their own type, on the way to that tile.
struct ConvolutionGraph {
  Direction direction = Direction::kForward;
  ConvShape shape;
  TensorLayouts layout;
  bool adds = false;
  Epilogue epilogue;

  [[nodiscard]] int tensors() const { return epilogue.bias ? 4 : 3; }
};

// The element types in which cuDNN computes `op`, and its tiles in `order`. 16-bit tiles whose sums
// must come out in float are kept in float: their products are exact under TF32.
ConvolutionGraph GraphOf(const TileOp& op, ChannelOrder order);
// The same with 16-bit inputs and a float output. For these cuDNN has only engines that compile at
// run time, and none of them accumulates.
ConvolutionGraph MixedGraphOf(const TileOp& op, ChannelOrder order);
// Whether tensor cores may be used, which round float inputs to TF32.
bool MayUseTensorCores(const TileOp& op);

// kUnsupported where cuDNN refuses the shape.
Result<Descriptor> MakeGraph(const Cudnn& cudnn, cudnnHandle_t handle,
                             const ConvolutionGraph& graph);
// Ties the tensors of a plan of the graph to memory; `tile` by operand, as in RunArgs.
Result<Descriptor> MakeVariantPack(const Cudnn& cudnn, const ConvolutionGraph& graph,
                                   const std::array<void*, kOperands>& tile, void* workspace);

}  // namespace oocdnn::cuda
