// Descriptors of cuDNN's backend interface: owners, a builder, and what can be read back.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "device/cuda/cudnn_library.hpp"

namespace oocdnn::cuda {

class Descriptor {
 public:
  Descriptor() = default;
  // Not finalized.
  static Result<Descriptor> Make(const Cudnn& cudnn, cudnnBackendDescriptorType_t type);
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept
      : cudnn_(other.cudnn_), raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Reset();
    cudnn_ = other.cudnn_;
    raw_ = std::exchange(other.raw_, nullptr);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] cudnnBackendDescriptor_t get() const { return raw_; }

  // Of a finalized descriptor.
  [[nodiscard]] Result<int64_t> Int(cudnnBackendAttributeName_t name) const;
  // A set of small enumerators as bits.
  [[nodiscard]] Result<uint32_t> Bits(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type) const;
  [[nodiscard]] Result<int> Enumerator(cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type) const;
  [[nodiscard]] Result<Descriptor> Child(cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type) const;
  [[nodiscard]] Result<std::vector<Descriptor>> Children(cudnnBackendAttributeName_t name,
                                                         cudnnBackendDescriptorType_t type) const;

 private:
  Descriptor(const Cudnn& cudnn, cudnnBackendDescriptor_t raw) : cudnn_(&cudnn), raw_(raw) {}
  void Reset();

  const Cudnn* cudnn_ = nullptr;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Makes one descriptor. The first failure stays, and everything after it does nothing.
class DescriptorBuilder {
 public:
  DescriptorBuilder(const Cudnn& cudnn, cudnnBackendDescriptorType_t type, const char* what);

  DescriptorBuilder& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t count, const void* elements);
  template <class T>
  DescriptorBuilder& One(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         T value) {
    return Set(name, type, 1, &value);
  }
  DescriptorBuilder& Ints(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    return Set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  DescriptorBuilder& Int(cudnnBackendAttributeName_t name, int64_t value) {
    return One(name, CUDNN_TYPE_INT64, value);
  }
  // cuDNN copies `child`, which must be finalized.
  DescriptorBuilder& Child(cudnnBackendAttributeName_t name, const Descriptor& child) {
    return One(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, child.get());
  }
  DescriptorBuilder& Children(cudnnBackendAttributeName_t name,
                              const std::vector<Descriptor>& children);
  Result<Descriptor> Finalize();

 private:
  const Cudnn& cudnn_;
  const char* const what_;
  Descriptor descriptor_;
  Status status_;
};

}  // namespace oocdnn::cuda
