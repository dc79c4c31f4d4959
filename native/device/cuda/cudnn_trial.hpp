// Finds the fastest of a few plans by running them.
#pragma once

#include <vector>

#include "device/cuda/cudnn_choice.hpp"

namespace oocdnn::cuda {

// The index of the fastest plan; the first, which cuDNN's heuristics prefer, unless another is
// clearly faster. Takes about a tenth of a second at most, and memory for the tiles while it lasts;
// where that is more than `most_bytes` or not to be had, or anything fails, the first.
size_t FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                 const std::vector<CudnnPlan>& plans, int64_t most_bytes);

}  // namespace oocdnn::cuda
