#include "testing/fuzz/client.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace oocdnn::fuzz {

namespace {

// The core keeps its list for as long as the process lives, and so do we.
const OocServed* Served() {
  static const OocServed* const served = oocdnn_cudnn_functions(nullptr);
  return served;
}

}  // namespace

Client::Client(uint64_t with)
    : random(with), seed(with), served_(Served()), scratch_(kScratch / sizeof(std::max_align_t)) {
  Expect(served_ != nullptr, "the core serves nothing");
  // Small numbers of every element type, whose sums are finite.
  for (size_t i = 0; i < data_.size(); ++i) data_[i] = i % 2 == 0 ? 0 : 0x3c;
  const auto make = [this](auto* function, auto& pool) {
    for (auto& place : pool) Expect(function(&place) == CUDNN_STATUS_SUCCESS, "no descriptor");
  };
  OOC_CUDNN(*this, cudnnCreate)(&handle);
  make(OOC_CUDNN(*this, cudnnCreateTensorDescriptor), tensors);
  make(OOC_CUDNN(*this, cudnnCreateFilterDescriptor), filters);
  make(OOC_CUDNN(*this, cudnnCreateConvolutionDescriptor), convolutions);
  make(OOC_CUDNN(*this, cudnnCreateActivationDescriptor), activations);
  make(OOC_CUDNN(*this, cudnnCreatePoolingDescriptor), poolings);
  make(OOC_CUDNN(*this, cudnnCreateOpTensorDescriptor), operations);
}

Client::~Client() {
  const auto destroy = [](auto* function, auto& pool) {
    for (auto place : pool) static_cast<void>(function(place));
  };
  destroy(OOC_CUDNN(*this, cudnnDestroyTensorDescriptor), tensors);
  destroy(OOC_CUDNN(*this, cudnnDestroyFilterDescriptor), filters);
  destroy(OOC_CUDNN(*this, cudnnDestroyConvolutionDescriptor), convolutions);
  destroy(OOC_CUDNN(*this, cudnnDestroyActivationDescriptor), activations);
  destroy(OOC_CUDNN(*this, cudnnDestroyPoolingDescriptor), poolings);
  destroy(OOC_CUDNN(*this, cudnnDestroyOpTensorDescriptor), operations);
  OOC_CUDNN(*this, cudnnDestroy)(handle);
}

OocFunction Client::Find(const char* name) const {
  for (const OocServed* one = served_; one->name != nullptr; ++one) {
    if (std::strcmp(one->name, name) == 0) return one->function;
  }
  Expect(false, "the core does not serve this function");
  return nullptr;
}

void Client::Say() const {
  std::fprintf(stderr, "seed %llu, call %lld: %s\n", static_cast<unsigned long long>(seed),
               static_cast<long long>(calls), name_);
}

void Client::Expect(bool holds, const char* rule) const {
  if (holds) return;
  std::fprintf(stderr, "%s\n", rule);
  Say();
  std::exit(1);
}

cudnnStatus_t Client::Answered(cudnnStatus_t status) {
  ++calls;
  if (status == CUDNN_STATUS_SUCCESS) {
    ++successes;
    return status;
  }
  const auto name_of =
      reinterpret_cast<decltype(&::cudnnGetErrorString)>(Find("cudnnGetErrorString"));
  Expect(std::strcmp(name_of(status), "CUDNN_UNKNOWN_STATUS") != 0, "a status without a name");
  return status;
}

bool Client::IsSmall(cudnnTensorDescriptor_t tensor) {
  if (tensor == nullptr) return true;
  size_t bytes = 0;
  int rank = 0;
  std::array<int, CUDNN_DIM_MAX> dims{}, strides{};
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  if (OOC_CUDNN(*this, cudnnGetTensorSizeInBytes)(tensor, &bytes) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  // A rank of 0 is an unset descriptor's, and numbers that fit no int are not told.
  if (OOC_CUDNN(*this, cudnnGetTensorNdDescriptor)(tensor, CUDNN_DIM_MAX, &dtype, &rank,
                                                   dims.data(),
                                                   strides.data()) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  int64_t elements = 1;
  for (int i = 0; i < rank && elements <= kMostElements; ++i) elements *= dims[i];
  return bytes <= kMostBytes && elements <= kMostElements;
}

bool Client::IsSmall(cudnnConvolutionDescriptor_t convolution) {
  if (convolution == nullptr) return true;
  constexpr int kMostAxes = CUDNN_DIM_MAX - 2, kMostStride = 64;
  int rank = 0;
  std::array<int, kMostAxes> pad{}, stride{}, dilation{};
  cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  if (OOC_CUDNN(*this, cudnnGetConvolutionNdDescriptor)(convolution, kMostAxes, &rank, pad.data(),
                                                        stride.data(), dilation.data(), &mode,
                                                        &compute) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  return std::all_of(stride.begin(), stride.end(), [](int s) { return s <= kMostStride; });
}

bool Client::IsSmall(cudnnFilterDescriptor_t filter) {
  size_t bytes = 0;
  if (filter == nullptr) return true;
  return OOC_CUDNN(*this, cudnnGetFilterSizeInBytes)(filter, &bytes) == CUDNN_STATUS_SUCCESS &&
         bytes <= kMostBytes / 16;
}

}  // namespace oocdnn::fuzz
