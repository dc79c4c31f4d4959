// Descriptors of the graph API as values: what a client told each of them.
//
// cuDNN copies what it is given: a descriptor set into another is a snapshot, which the client may
// then destroy. So do we, by shared, immutable nodes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "abi/cudnn_backend.h"

namespace oocdnn::shim {

struct Node;
using NodePointer = std::shared_ptr<const Node>;

// One attribute: its elements as they were given, or the nodes that they name.
struct Attribute {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  int64_t count = 0;
  std::vector<char> bytes{};
  std::vector<NodePointer> nodes{};
  int levels = 0;  // of nodes below
};

// Reading and destroying nodes recurses into their parts, so their depth is limited. A plan of a
// graph has 6 levels.
constexpr int kMostLevels = 64;

// Adds a part. False, and nothing is added, where it is too deep.
bool AddNode(Attribute* attribute, NodePointer node);

struct Node {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes{};

  [[nodiscard]] const Attribute* Find(cudnnBackendAttributeName_t name) const;
  // The first element as a number, whatever its type; nothing where it is not set.
  [[nodiscard]] std::optional<int64_t> Integer(cudnnBackendAttributeName_t name) const;
  [[nodiscard]] std::optional<double> Real(cudnnBackendAttributeName_t name) const;
  [[nodiscard]] std::vector<int64_t> Integers(cudnnBackendAttributeName_t name) const;
  [[nodiscard]] std::vector<void*> Pointers(cudnnBackendAttributeName_t name) const;
  // The first node; null where there is none.
  [[nodiscard]] NodePointer Child(cudnnBackendAttributeName_t name) const;
  [[nodiscard]] int levels() const;
};

// An attribute as a client sets it, but for nodes, which only the caller can name. Throws where the
// elements do not fit memory.
Attribute Copied(cudnnBackendAttributeType_t type, int64_t count, const void* elements);

// Nodes that real libraries and ours give to clients ready made: an engine of the graph, and a
// configuration of the engine. `no_engine`: the real library has none for the graph, and the
// descriptor is of another.
Node EngineOf(NodePointer graph, bool no_engine = false);
Node ConfigurationOf(NodePointer engine);
// The graph behind a plan, a configuration or an engine; null where it is not known.
NodePointer GraphBehind(const Node& node);
// The engine behind them, or itself; null where it is not known.
const Node* EngineBehind(const Node& node);
// Whether that engine was made with `no_engine`.
bool HasNoEngine(const Node& node);

// Bytes of one element of an attribute's type; 0 where it is unknown.
size_t ElementBytes(cudnnBackendAttributeType_t type);

}  // namespace oocdnn::shim
