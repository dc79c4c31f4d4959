#include "shim/large_tensor.hpp"

#include <atomic>
#include <climits>
#include <mutex>
#include <unordered_map>

#include "base/process_lock.hpp"
#include "shim/emulated_tensor.hpp"
#include "shim/legacy_read.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Tensor = cudnnTensorDescriptor_t;

// Never torn down, because clients destroy descriptors until their very end.
struct Large {
  ProcessLock lock;
  std::unordered_map<Tensor, TensorValue> values;
  std::atomic<size_t> count{0};
};

Large& All() {
  static auto* const all = new Large;
  return *all;
}

void Keep(Tensor tensor, const TensorValue& value) {
  Large& all = All();
  const std::lock_guard turn(all.lock);
  all.values[tensor] = value;
  all.count = all.values.size();
}

void Forget(Tensor tensor) {
  if (!AnyLarge()) return;
  Large& all = All();
  const std::lock_guard turn(all.lock);
  all.values.erase(tensor);
  all.count = all.values.size();
}

bool HasMany(const TensorValue& value) {
  int64_t elements = 1;
  for (int i = 0; i < value.rank; ++i) elements = Mul(elements, value.dims[i]);
  return elements > INT_MAX;
}

// The setters: what the real library refuses for its size alone is remembered.
template <auto kReal, auto kOwn>
struct Setter;
template <auto kReal, class... Rest, cudnnStatus_t (*kOwn)(Tensor, Rest...)>
struct Setter<kReal, kOwn> {
  static cudnnStatus_t Call(Tensor tensor, Rest... rest) {
    const cudnnStatus_t status = (TheReal().*kReal)(tensor, rest...);
    Passed();
    if (tensor == nullptr) return status;
    if (status == CUDNN_STATUS_SUCCESS) {
      Forget(tensor);
      return status;
    }
    cudnnTensorStruct own;
    const cudnnStatus_t kept = Serve([&] {
      OOC_CUDNN_TRY(kOwn(&own, rest...));
      if (!HasMany(own.value)) return status;
      Keep(tensor, own.value);
      return CUDNN_STATUS_SUCCESS;
    });
    return kept == CUDNN_STATUS_SUCCESS ? kept : status;
  }
};

template <auto kReal, auto kOwn>
struct Getter;
template <auto kReal, class... Rest, cudnnStatus_t (*kOwn)(Tensor, Rest...)>
struct Getter<kReal, kOwn> {
  static cudnnStatus_t Call(Tensor tensor, Rest... rest) {
    cudnnTensorStruct own;
    if (FindLarge(tensor, &own.value)) return Ours(kOwn(&own, rest...));
    Passed();
    return (TheReal().*kReal)(tensor, rest...);
  }
};

cudnnStatus_t DestroyTensor(Tensor tensor) {
  Forget(tensor);
  Passed();
  return TheReal().cudnnDestroyTensorDescriptor(tensor);
}

cudnnStatus_t OutputOfLarge(cudnnConvolutionDescriptor_t convolution, const TensorValue& x,
                            cudnnFilterDescriptor_t filter, int rank, int* dims) {
  return Ours(Serve([&] {
    OOC_NEED(dims != nullptr, "the place is null");
    ConvolutionValue value;
    FilterValue w;
    OOC_CUDNN_TRY(Read(convolution, &value));
    OOC_CUDNN_TRY(Read(filter, &w));
    return OutputExtents(value, x, w, rank, dims);
  }));
}

cudnnStatus_t OutputNd(cudnnConvolutionDescriptor_t convolution, Tensor input,
                       cudnnFilterDescriptor_t filter, int rank, int* dims) {
  TensorValue x;
  if (FindLarge(input, &x)) return OutputOfLarge(convolution, x, filter, rank, dims);
  Passed();
  return TheReal().cudnnGetConvolutionNdForwardOutputDim(convolution, input, filter, rank, dims);
}

cudnnStatus_t Output2d(cudnnConvolutionDescriptor_t convolution, Tensor input,
                       cudnnFilterDescriptor_t filter, int* n, int* c, int* h, int* w) {
  TensorValue x;
  if (!FindLarge(input, &x)) {
    Passed();
    return TheReal().cudnnGetConvolution2dForwardOutputDim(convolution, input, filter, n, c, h, w);
  }
  int dims[4] = {};
  OOC_CUDNN_TRY(OutputOfLarge(convolution, x, filter, 4, dims));
  Give(dims[0], n);
  Give(dims[1], c);
  Give(dims[2], h);
  Give(dims[3], w);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

bool AnyLarge() { return All().count > 0; }

bool FindLarge(Tensor descriptor, TensorValue* value) {
  if (!AnyLarge()) return false;
  Large& all = All();
  const std::lock_guard turn(all.lock);
  const auto found = all.values.find(descriptor);
  if (found == all.values.end()) return false;
  *value = found->second;
  return true;
}

bool IsLarge(Tensor descriptor) {
  TensorValue value;
  return FindLarge(descriptor, &value);
}

void ServeLargeTensors(Served* served) {
  OOC_SERVE(served, cudnnDestroyTensorDescriptor, DestroyTensor);
  OOC_SERVE(served, cudnnSetTensor4dDescriptor,
            (Setter<&Real::cudnnSetTensor4dDescriptor, own_tensor::Set4d>::Call));
  OOC_SERVE(served, cudnnSetTensor4dDescriptorEx,
            (Setter<&Real::cudnnSetTensor4dDescriptorEx, own_tensor::Set4dEx>::Call));
  OOC_SERVE(served, cudnnSetTensorNdDescriptor,
            (Setter<&Real::cudnnSetTensorNdDescriptor, own_tensor::SetNd>::Call));
  OOC_SERVE(served, cudnnSetTensorNdDescriptorEx,
            (Setter<&Real::cudnnSetTensorNdDescriptorEx, own_tensor::SetNdEx>::Call));
  OOC_SERVE(served, cudnnGetTensor4dDescriptor,
            (Getter<&Real::cudnnGetTensor4dDescriptor, own_tensor::Get4d>::Call));
  OOC_SERVE(served, cudnnGetTensorNdDescriptor,
            (Getter<&Real::cudnnGetTensorNdDescriptor, own_tensor::GetNd>::Call));
  OOC_SERVE(served, cudnnGetTensorSizeInBytes,
            (Getter<&Real::cudnnGetTensorSizeInBytes, own_tensor::GetSize>::Call));
  OOC_SERVE(served, cudnnGetConvolution2dForwardOutputDim, Output2d);
  OOC_SERVE(served, cudnnGetConvolutionNdForwardOutputDim, OutputNd);
}

}  // namespace oocdnn::shim
