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
  double seconds = 0.0;  // of a run, measured or estimated; see Executable::run_seconds
};

// The probes of a trial: engines to be run, and the smaller tiles of the same kind to run them on,
// in ascending order of size.
struct CudnnProbes {
  std::vector<int64_t> engines;
  std::vector<ConvShape> shapes;
};

// One thread at a time.
class CudnnTrials {
 public:
  // The index of the fastest plan; the first, which cuDNN's heuristics prefer, unless another is
  // clearly faster. Takes about a tenth of a second at most, and memory for the tiles while it
  // lasts; where that is more than `most_bytes` or not to be had, or anything fails, the first. A
  // later plan is passed over whose engine was many times slower on a smaller tile of its kind.
  // A plan whose engine has a rate (see Probe) is estimated instead where a run would take longer
  // than the rest of that time. An engine without one is not run on a tile on which it may take
  // very long, and serves there only where no other has one; it is thought to be the slowest.
  CudnnTrial FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                       const std::vector<CudnnPlan>& plans, int64_t most_bytes);
  // For a trial of these plans, whose runs may take very long: a running kernel cannot be
  // cancelled. None where runs are short on any engine. An engine is named once for each kind of
  // tile.
  CudnnProbes ProbesFor(const ConvolutionGraph& graph, const std::vector<CudnnPlan>& plans);
  // Measures the rate of each plan's engine on a smaller tile, in a few tenths of a second at most;
  // what is far slower than the best is hopeless on larger tiles. Whether a larger probe may still
  // tell more of a tile of so many operations.
  bool Probe(CudnnSession& session, const ConvolutionGraph& graph,
             const std::vector<CudnnPlan>& plans, int64_t most_bytes, double operations);
  // The number of the engine that was the fastest on a tile of this kind, if one was tried.
  [[nodiscard]] std::vector<int64_t> WinnerOf(const ConvolutionGraph& graph) const;

 private:
  class Bench;
  Result<float> Time(Bench* bench, const ConvolutionGraph& graph, const CudnnPlan& plan,
                     float enough);
  // Milliseconds of a plan: of a run that ends in time, by its estimate, in what is `left`; else
  // the estimate, scaled. A run that takes longer than its estimate is its engine's rate from then
  // on.
  Result<float> Look(Bench* bench, const ConvolutionGraph& graph, const CudnnPlan& plan, float left,
                     float enough, double scale);
  [[nodiscard]] bool IsHopeless(const ConvolutionGraph& graph, const CudnnPlan& plan) const;
  [[nodiscard]] bool IsRated(const ConvolutionGraph& graph, const CudnnPlan& plan) const;
  // Returns true where the time of a run is bounded.
  [[nodiscard]] bool IsKnown(const ConvolutionGraph& graph, const CudnnPlan& plan) const;
  [[nodiscard]] bool IsHopeful(const ConvolutionGraph& graph, const CudnnPlan& plan) const;
  // The first that is hopeful, else the first that is known, else the first.
  [[nodiscard]] size_t LeadOf(const ConvolutionGraph& graph,
                              const std::vector<CudnnPlan>& plans) const;
  [[nodiscard]] double Estimate(const ConvolutionGraph& graph, const CudnnPlan& plan) const;

  // Milliseconds of an operation on the largest probe, or on a tile that took longer than by that;
  // by engine and kind of tile.
  std::map<std::string, double> rates_;
  std::set<std::string> probed_;  // engine and kind of tile, with a rate or without
  // Operations from which on an engine is hopeless, by engine and kind of tile.
  std::map<std::string, double> hopeless_;
  std::set<std::string> loaded_;           // engines whose code has run
  std::map<std::string, int64_t> winner_;  // engines, by kind of tile
};

}  // namespace oocdnn::cuda
