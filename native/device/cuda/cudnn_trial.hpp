// Finds the fastest of a few plans by running them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "device/cuda/cudnn_choice.hpp"

namespace oocdnn::cuda {

// The choice among plans.
struct CudnnTrial {
  size_t fastest = 0;
  double seconds = 0.0;  // of a run, measured or estimated; 0 where unknown
};

// One thread at a time.
class CudnnTrials {
 public:
  // The index of the fastest plan; the first, which cuDNN's heuristics prefer, unless another is
  // clearly faster. Takes about a tenth of a second at most, and memory for the tiles while it
  // lasts; where that is more than `most_bytes` or not to be had, or anything fails, the first. A
  // later plan is passed over whose engine was many times slower on a smaller tile of its kind.
  // A plan whose engine has a rate (see Probe) is estimated instead where a run would take longer
  // than the rest of that time.
  CudnnTrial FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                       const std::vector<CudnnPlan>& plans, int64_t most_bytes);
  // Whether a run of a tile of this shape may take so long that a smaller one must be probed before
  // it: a running kernel cannot be cancelled.
  [[nodiscard]] bool WantsProbe(const ConvolutionGraph& graph) const;
  // Measures the rate of each plan's engine on a tile of the same kind that is smaller, see
  // ProbeShape. Takes a few tenths of a second at most.
  void Probe(CudnnSession& session, const ConvolutionGraph& graph,
             const std::vector<CudnnPlan>& plans, int64_t most_bytes);
  // The number of the engine that was the fastest on a tile of this kind; -1 where none was tried.
  [[nodiscard]] int64_t WinnerOf(const ConvolutionGraph& graph) const;

 private:
  class Bench;
  Result<float> Try(Bench* bench, const ConvolutionGraph& graph, const CudnnPlan& plan,
                    float enough);

  // Seconds of an operation on a probed tile, by engine and kind of tile; and the kinds.
  std::map<std::string, double> rates_;
  std::set<std::string> probed_;
  // Operations from which on an engine is hopeless, by engine and kind of tile.
  std::map<std::string, double> hopeless_;
  std::set<std::string> loaded_;           // engines whose code has run
  std::map<std::string, int64_t> winner_;  // engines, by kind of tile
};

// The shape with fewer samples and rows, so that a run is short on any engine.
ConvShape ProbeShape(ConvShape shape, Direction direction);

}  // namespace oocdnn::cuda
