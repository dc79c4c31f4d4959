#include "shim/plan_text.hpp"

#include <cstring>
#include <utility>

namespace oocdnn::shim {
namespace {

constexpr std::string_view kBegin = "{\"oocdnn_plan\":\"", kEnd = "\"}";
constexpr int kDeepest = 8;  // a graph, its operations, their tensors and windows
constexpr std::string_view kDigits = "0123456789abcdef";

template <class T>
void Write(T value, std::string* to) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to->append(bytes, sizeof value);
}

// Addresses mean nothing in another process.
bool IsAddress(const Attribute& attribute) {
  return attribute.type == CUDNN_TYPE_HANDLE || attribute.type == CUDNN_TYPE_VOID_PTR;
}

void WriteNode(const Node& node, std::string* to) {
  Write(static_cast<int32_t>(node.type), to);
  int32_t attributes = 0;
  for (const auto& [_, attribute] : node.attributes) attributes += IsAddress(attribute) ? 0 : 1;
  Write(attributes, to);
  for (const auto& [name, attribute] : node.attributes) {
    if (IsAddress(attribute)) continue;
    Write(static_cast<int32_t>(name), to);
    Write(static_cast<int32_t>(attribute.type), to);
    Write(attribute.count, to);
    if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      to->append(attribute.bytes.data(), attribute.bytes.size());
    }
    for (const NodePointer& part : attribute.nodes) WriteNode(*part, to);
  }
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  [[nodiscard]] bool done() const { return left_.empty(); }

  template <class T>
  bool Read(T* value) {
    if (left_.size() < sizeof *value) return false;
    left_.copy(reinterpret_cast<char*>(value), sizeof *value);
    left_.remove_prefix(sizeof *value);
    return true;
  }

  // Null where the bytes end too early, or mean nothing.
  NodePointer ReadNode(int depth) {
    int32_t type = 0, attributes = 0;
    if (depth > kDeepest || !Read(&type) || !Read(&attributes)) return nullptr;
    auto node = std::make_shared<Node>();
    node->type = static_cast<cudnnBackendDescriptorType_t>(type);
    node->finalized = true;
    for (int32_t i = 0; i < attributes; ++i) {
      int32_t name = 0;
      Attribute attribute;
      if (!Read(&name) || !ReadAttribute(depth, &attribute)) return nullptr;
      node->attributes[static_cast<cudnnBackendAttributeName_t>(name)] = std::move(attribute);
    }
    return node;
  }

 private:
  bool ReadAttribute(int depth, Attribute* attribute) {
    int32_t type = 0;
    if (!Read(&type) || !Read(&attribute->count)) return false;
    attribute->type = static_cast<cudnnBackendAttributeType_t>(type);
    const auto most = static_cast<int64_t>(left_.size());
    if (attribute->count < 0 || attribute->count > most) return false;
    if (attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      for (int64_t i = 0; i < attribute->count; ++i) {
        attribute->nodes.push_back(ReadNode(depth + 1));
        if (attribute->nodes.back() == nullptr) return false;
      }
      return true;
    }
    const size_t bytes = static_cast<size_t>(attribute->count) * ElementBytes(attribute->type);
    if (bytes > left_.size()) return false;
    attribute->bytes.assign(left_.begin(), left_.begin() + static_cast<int64_t>(bytes));
    left_.remove_prefix(bytes);
    return true;
  }

  std::string_view left_;
};

}  // namespace

std::string TextOf(const PlanText& plan) {
  std::string bytes;
  Write(static_cast<int32_t>(plan.tensor_cores ? 1 : 0), &bytes);
  WriteNode(*plan.graph, &bytes);
  std::string text(kBegin);
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text.append(kEnd);
}

bool IsPlanText(std::string_view text) { return text.starts_with(kBegin); }

std::optional<PlanText> PlanOf(std::string_view text) {
  while (text.ends_with('\0')) text.remove_suffix(1);
  if (!IsPlanText(text) || !text.ends_with(kEnd)) return std::nullopt;
  text = text.substr(kBegin.size(), text.size() - kBegin.size() - kEnd.size());
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]), low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  Reader reader(bytes);
  int32_t tensor_cores = 0;
  if (!reader.Read(&tensor_cores)) return std::nullopt;
  PlanText plan{reader.ReadNode(0), tensor_cores != 0};
  if (plan.graph == nullptr || !reader.done()) return std::nullopt;
  return plan;
}

}  // namespace oocdnn::shim
