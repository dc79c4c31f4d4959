// Finds the fastest of a few plans by running them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "device/cuda/cudnn_choice.hpp"

namespace oocdnn::cuda {

// One thread at a time.
class CudnnTrials {
 public:
  // The index of the fastest plan; the first, which cuDNN's heuristics prefer, unless another is
  // clearly faster. Takes about a tenth of a second at most, and memory for the tiles while it
  // lasts; where that is more than `most_bytes` or not to be had, or anything fails, the first. A
  // later plan is passed over whose engine was many times slower on a smaller tile of its kind.
  size_t FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                   const std::vector<CudnnPlan>& plans, int64_t most_bytes);
  // The number of the engine that was the fastest on a tile of this kind; -1 where none was tried.
  [[nodiscard]] int64_t WinnerOf(const ConvolutionGraph& graph) const;

 private:
  // Operations from which on an engine is hopeless, by engine and kind of tile.
  std::map<std::string, double> hopeless_;
  std::set<std::string> loaded_;           // engines whose code has run
  std::map<std::string, int64_t> winner_;  // engines, by kind of tile
};

}  // namespace oocdnn::cuda
