// What clients told the real library's descriptors of the graph API, by their addresses: the real
// library does not give it back faithfully.
//
// Any thread. It is never torn down, because clients destroy plans until their very end.
#pragma once

#include <functional>
#include <memory>

#include "shim/graph_node.hpp"
#include "shim/graph_pattern.hpp"

namespace oocdnn::shim {

// A plan of a graph that we could run.
struct PlanShadow {
  GraphPattern pattern;
  bool real = true;           // the real library has made it too
  bool taken = false;         // runs through us, wherever its operands are
  int64_t scratch_bytes = 0;  // of the workspace that the client is told to pass, where taken
  const char* why = "";
};
using PlanPointer = std::shared_ptr<const PlanShadow>;

struct Shadow {
  NodePointer node;
  PlanPointer plan;
};

// A new node; forgets what was there, because addresses are used again.
void Put(cudnnBackendDescriptor_t descriptor, Node node);
void Put(cudnnBackendDescriptor_t descriptor, PlanPointer plan);
// Changes the node, if it is known. Snapshots that others hold stay as they are.
void Update(cudnnBackendDescriptor_t descriptor, const std::function<void(Node*)>& change);
void Drop(cudnnBackendDescriptor_t descriptor);
// Empty where it is not known.
Shadow Look(cudnnBackendDescriptor_t descriptor);

}  // namespace oocdnn::shim
