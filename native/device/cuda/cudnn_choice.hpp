// Which of cuDNN's engines may serve a tile, and with which knobs.
#pragma once

#include <string>
#include <vector>

#include "device/cuda/cudnn_graph.hpp"
#include "device/cuda/cudnn_session.hpp"

namespace oocdnn::cuda {

// What cuDNN says of an engine: its number, which counts in each direction anew, and its notes as
// bits.
struct EngineFacts {
  int64_t engine = 0;
  uint32_t numerical = 0, behavior = 0;
  [[nodiscard]] bool Has(cudnnBackendNumericalNote_t note) const {
    return (numerical >> static_cast<int>(note) & 1u) != 0;
  }
};

// What an engine may do. `compiled`: how many may be compiled, where none is ready; each takes 0.2
// to 0.8 s for each tile shape.
struct Permissions {
  bool tensor_cores = false;
  bool transforms = false;  // Winograd's and Fourier's, which round more often
  size_t compiled = 0;
  int64_t workspace = INT64_MAX;  // the most bytes
  // Whether what comes after a configuration that wants more than that will do; one that wants more
  // than the GPU has counts for nothing.
  bool second_choice = true;
  std::vector<int64_t> engines;  // no others than these, if any are named
};

// Why an engine is not taken whatever its speed, or null. What is left adds plain products in the
// types asked for, or transforms where it may, the same way at every run.
const char* ObjectionTo(const EngineFacts& facts, Direction direction, const Permissions& may);

// One engine with its knobs, ready to run.
struct CudnnPlan {
  Descriptor plan;
  EngineFacts facts;
  int64_t workspace_bytes = 0;
  std::string text;  // engine and knobs: "e67 k2=3 k24=1"
};

// The best configuration of each of a few engines (of so many as may be compiled), in the order
// of cuDNN's heuristics. Never empty: kUnsupported with the reason, or kOutOfMemory with the least
// workspace that works.
Result<std::vector<CudnnPlan>> FindPlans(CudnnSession& session, const ConvolutionGraph& graph,
                                         const Permissions& may);

}  // namespace oocdnn::cuda
