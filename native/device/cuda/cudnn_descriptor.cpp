#include "device/cuda/cudnn_descriptor.hpp"

#include <algorithm>
#include <array>

namespace oocdnn::cuda {
namespace {

constexpr const char* kReading = "reading an attribute";

}  // namespace

Result<Descriptor> Descriptor::Make(const Cudnn& cudnn, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  OOC_TRY(cudnn.Check(cudnn.cudnnBackendCreateDescriptor(type, &raw), "creating a descriptor"));
  return Descriptor(cudnn, raw);
}

void Descriptor::Reset() {
  if (raw_ != nullptr) cudnn_->cudnnBackendDestroyDescriptor(std::exchange(raw_, nullptr));
}

Result<int64_t> Descriptor::Int(cudnnBackendAttributeName_t name) const {
  int64_t value = 0, count = 0;
  OOC_TRY(cudnn_->Check(
      cudnn_->cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_INT64, 1, &count, &value), kReading));
  return value;
}

Result<uint32_t> Descriptor::Bits(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type) const {
  std::array<int, 32> values{};
  int64_t count = 0;
  OOC_TRY(cudnn_->Check(
      cudnn_->cudnnBackendGetAttribute(raw_, name, type, values.size(), &count, values.data()),
      kReading));
  uint32_t bits = 0;
  for (const int value : std::span(values).first(std::clamp<size_t>(count, 0, values.size()))) {
    bits |= 1u << std::clamp(value, 0, 31);
  }
  return bits;
}

Result<int> Descriptor::Enumerator(cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type) const {
  int value = 0;
  int64_t count = 0;
  OOC_TRY(cudnn_->Check(cudnn_->cudnnBackendGetAttribute(raw_, name, type, 1, &count, &value),
                        kReading));
  return value;
}

// cuDNN fills descriptors that its caller has created.
Result<Descriptor> Descriptor::Child(cudnnBackendAttributeName_t name,
                                     cudnnBackendDescriptorType_t type) const {
  OOC_ASSIGN(Descriptor child, Make(*cudnn_, type));
  cudnnBackendDescriptor_t raw = child.get();
  int64_t count = 0;
  OOC_TRY(cudnn_->Check(
      cudnn_->cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
      kReading));
  return child;
}

// The number that cuDNN says first may be too high.
Result<std::vector<Descriptor>> Descriptor::Children(cudnnBackendAttributeName_t name,
                                                     cudnnBackendDescriptorType_t type) const {
  int64_t count = 0;
  const auto get = [&](int64_t capacity, void* elements) {
    return cudnn_->Check(cudnn_->cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                          capacity, &count, elements),
                         kReading);
  };
  OOC_TRY(get(0, nullptr));
  std::vector<Descriptor> children;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    OOC_ASSIGN(Descriptor child, Make(*cudnn_, type));
    raw.push_back(child.get());
    children.push_back(std::move(child));
  }
  if (raw.empty()) return children;
  OOC_TRY(get(static_cast<int64_t>(raw.size()), raw.data()));
  children.resize(std::clamp<size_t>(count, 0, children.size()));
  return children;
}

DescriptorBuilder::DescriptorBuilder(const Cudnn& cudnn, cudnnBackendDescriptorType_t type,
                                     const char* what)
    : cudnn_(cudnn), what_(what) {
  Result<Descriptor> made = Descriptor::Make(cudnn, type);
  if (made.ok()) {
    descriptor_ = std::move(made).value();
  } else {
    status_ = std::move(made).status();
  }
}

DescriptorBuilder& DescriptorBuilder::Set(cudnnBackendAttributeName_t name,
                                          cudnnBackendAttributeType_t type, int64_t count,
                                          const void* elements) {
  if (status_.ok()) {
    status_ = cudnn_.Check(
        cudnn_.cudnnBackendSetAttribute(descriptor_.get(), name, type, count, elements), what_);
  }
  return *this;
}

DescriptorBuilder& DescriptorBuilder::Children(cudnnBackendAttributeName_t name,
                                               const std::vector<Descriptor>& children) {
  std::vector<cudnnBackendDescriptor_t> raw;
  raw.reserve(children.size());
  for (const Descriptor& child : children) raw.push_back(child.get());
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}

Result<Descriptor> DescriptorBuilder::Finalize() {
  OOC_TRY(std::move(status_));
  OOC_TRY(cudnn_.Check(cudnn_.cudnnBackendFinalize(descriptor_.get()), what_));
  return std::move(descriptor_);
}

}  // namespace oocdnn::cuda
