#include "shim/graph_node.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.hpp"

namespace oocdnn::shim {
namespace {

// Nothing where the elements have fewer bytes.
template <class T>
std::optional<T> First(const Attribute& attribute) {
  T value{};
  if (attribute.bytes.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, attribute.bytes.data(), sizeof value);
  return value;
}

template <class T>
std::vector<T> All(const Attribute* attribute) {
  if (attribute == nullptr) return {};
  std::vector<T> values(attribute->bytes.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), attribute->bytes.data(), values.size() * sizeof(T));
  }
  return values;
}

}  // namespace

size_t ElementBytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_FRACTION: return 16;
    default: return type >= CUDNN_TYPE_HANDLE && type <= CUDNN_TYPE_NORM_MODE ? 4 : 0;
  }
}

Attribute Copied(cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  Attribute attribute{.type = type, .count = count};
  const int64_t bytes = Mul(static_cast<int64_t>(ElementBytes(type)), count);
  if (elements != nullptr && bytes > 0) {
    attribute.bytes.resize(static_cast<size_t>(bytes));
    std::memcpy(attribute.bytes.data(), elements, attribute.bytes.size());
  }
  return attribute;
}

bool AddNode(Attribute* attribute, NodePointer node) {
  const int levels = node->levels() + 1;
  if (levels > kMostLevels) return false;
  attribute->levels = std::max(attribute->levels, levels);
  attribute->nodes.push_back(std::move(node));
  return true;
}

namespace {

// An attribute of our own on engines, which have none of this number.
constexpr auto kNoEngine = static_cast<cudnnBackendAttributeName_t>(2046);

Node ReadyMade(cudnnBackendDescriptorType_t type, cudnnBackendAttributeName_t name,
               NodePointer child) {
  Node node{.type = type, .finalized = true};
  const int levels = child != nullptr ? child->levels() + 1 : 1;
  node.attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {std::move(child)}, levels};
  return node;
}

}  // namespace

Node EngineOf(NodePointer graph, bool no_engine) {
  Node engine = ReadyMade(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                          std::move(graph));
  const int64_t set = 1;
  if (no_engine) engine.attributes[kNoEngine] = Copied(CUDNN_TYPE_INT64, 1, &set);
  return engine;
}

Node ConfigurationOf(NodePointer engine) {
  return ReadyMade(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE,
                   std::move(engine));
}

const Node* EngineBehind(const Node& node) {
  if (node.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) return &node;
  const bool plan = node.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  const NodePointer next =
      node.Child(plan ? CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG : CUDNN_ATTR_ENGINECFG_ENGINE);
  return next != nullptr ? EngineBehind(*next) : nullptr;  // `node` holds it
}

NodePointer GraphBehind(const Node& node) {
  const Node* const engine = EngineBehind(node);
  return engine != nullptr ? engine->Child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : nullptr;
}

bool HasNoEngine(const Node& node) {
  const Node* const engine = EngineBehind(node);
  return engine != nullptr && engine->Integer(kNoEngine).value_or(0) != 0;
}

int Node::levels() const {
  int levels = 0;
  for (const auto& [name, attribute] : attributes) levels = std::max(levels, attribute.levels);
  return levels;
}

const Attribute* Node::Find(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() || found->second.count == 0 ? nullptr : &found->second;
}

std::optional<int64_t> Node::Integer(cudnnBackendAttributeName_t name) const {
  const Attribute* const attribute = Find(name);
  if (attribute == nullptr) return std::nullopt;
  switch (ElementBytes(attribute->type)) {
    case 1: return First<int8_t>(*attribute);
    case 8: return First<int64_t>(*attribute);
    default: return First<int32_t>(*attribute);
  }
}

std::optional<double> Node::Real(cudnnBackendAttributeName_t name) const {
  const Attribute* const attribute = Find(name);
  if (attribute == nullptr) return std::nullopt;
  if (attribute->type == CUDNN_TYPE_DOUBLE) return First<double>(*attribute);
  return First<float>(*attribute);
}

std::vector<int64_t> Node::Integers(cudnnBackendAttributeName_t name) const {
  return All<int64_t>(Find(name));
}

std::vector<void*> Node::Pointers(cudnnBackendAttributeName_t name) const {
  return All<void*>(Find(name));
}

NodePointer Node::Child(cudnnBackendAttributeName_t name) const {
  const Attribute* const attribute = Find(name);
  return attribute == nullptr || attribute->nodes.empty() ? nullptr : attribute->nodes.front();
}

}  // namespace oocdnn::shim
