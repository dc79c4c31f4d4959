// A convolution in an operation graph: one in any direction alone, or a forward one followed by
// scale, bias, residual and activation.
#pragma once

#include <string>

#include "base/status.hpp"
#include "shim/convolve.hpp"
#include "shim/graph_node.hpp"

namespace oocdnn::shim {

struct GraphPattern {
  ConvolutionCall call;  // without pointers and stream
  // By which each tensor is found in a variant pack; those of operands that are not used mean
  // nothing.
  int64_t x = 0, w = 0, y = 0, bias = 0, scale = 0, residual = 0;
};

// Reads the operations of a graph; kUnsupported with the reason where they are not such a
// convolution.
Result<GraphPattern> Recognize(const Node& graph);

// Fills in the pointers that a variant pack gives. BAD_PARAM where one is missing.
cudnnStatus_t Bind(const GraphPattern& pattern, const Node& pack, ConvolutionCall* call);

}  // namespace oocdnn::shim
