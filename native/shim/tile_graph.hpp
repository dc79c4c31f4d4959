// Engine configurations of the real library for graphs for which it has none: those of the same
// graph with smaller tensors, so that whatever a client asks a configuration is answered.
#pragma once

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

// Makes `config` a configuration of the graph, of which `pattern` is what it computes, with one
// image and few rows. False where the real library has none for that either.
bool ConfigureTile(const Node& graph, const GraphPattern& pattern, cudnnBackendDescriptor_t config);

}  // namespace oocdnn::shim
