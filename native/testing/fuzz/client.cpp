#include "testing/fuzz/client.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace oocdnn::fuzz {

uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

int64_t Random::Integer(int64_t small) {
  switch (Below(12)) {
    case 0: return static_cast<int64_t>(Next());
    case 1: return static_cast<int64_t>((uint64_t{1} << Below(64)) + Below(3) - 1);
    case 2: return -static_cast<int64_t>(Below(static_cast<size_t>(small) + 1));
    case 3: return static_cast<int64_t>(INT32_MAX) + static_cast<int64_t>(Below(3)) - 1;
    default: return static_cast<int64_t>(Below(static_cast<size_t>(small) + 1));
  }
}

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

bool Client::IsSmall(cudnnFilterDescriptor_t filter) {
  size_t bytes = 0;
  if (filter == nullptr) return true;
  return OOC_CUDNN(*this, cudnnGetFilterSizeInBytes)(filter, &bytes) == CUDNN_STATUS_SUCCESS &&
         bytes <= kMostBytes / 16;
}

}  // namespace oocdnn::fuzz
