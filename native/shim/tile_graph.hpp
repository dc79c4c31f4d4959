// Engine configurations of the real library for graphs for which it has none: those of the same
// graph with smaller tensors, so that whatever a client asks a configuration is answered.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shim/graph_node.hpp"
#include "shim/graph_pattern.hpp"

namespace oocdnn::shim {

// Descriptors of the real library that no client knows. Any thread, one at a time.
class RealDescriptors {
 public:
  RealDescriptors() = default;
  RealDescriptors(const RealDescriptors&) = delete;
  RealDescriptors& operator=(const RealDescriptors&) = delete;
  ~RealDescriptors();

  // A new one, destroyed with this object; null where the real library makes none.
  cudnnBackendDescriptor_t Make(cudnnBackendDescriptorType_t type);

 private:
  std::vector<cudnnBackendDescriptor_t> made_;
};

// An answer of the real library's heuristics: `given` configurations, in the first places.
struct HeuristicResults {
  std::vector<cudnnBackendDescriptor_t> room;
  int64_t given = 0;
};
// The answer with room for all that there may be, or for `most`; nothing given where it fails.
HeuristicResults ResultsOf(cudnnBackendDescriptor_t heuristics, int64_t most,
                           RealDescriptors* made);
// Asks again, into the descriptors that `results` has room for now. They must be new: the real
// library fills none that is final, and stops at the first such one.
void FillResults(cudnnBackendDescriptor_t heuristics, HeuristicResults* results);

// Makes `config` a configuration of the graph, of which `pattern` is what it computes, with one
// image and few rows; with tensor cores or without, where that is said. False where the real
// library has none for that either.
bool ConfigureTile(const Node& graph, const GraphPattern& pattern, cudnnBackendDescriptor_t config,
                   std::optional<bool> tensor_cores = std::nullopt);

}  // namespace oocdnn::shim
