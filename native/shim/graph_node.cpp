#include "shim/graph_node.hpp"

#include <cstring>

namespace oocdnn::shim {
namespace {

template <class T>
T First(const Attribute& attribute) {
  T value{};
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
    default: return 4;  // float, int32 and enums
  }
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
  return static_cast<double>(First<float>(*attribute));
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
