// The legacy interface. Every function is called with arguments that are drawn by their types.
#include <cstring>
#include <iterator>
#include <limits>
#include <tuple>
#include <type_traits>

#include "testing/fuzz/client.hpp"

namespace oocdnn::fuzz {
namespace {

constexpr int kNumbers = 16;  // of an array that a client passes, and at least as many axes

template <class T, size_t kCount>
T Pick(Client* client, const std::array<T, kCount>& pool) {
  return client->random.Chance(3) ? nullptr : pool[client->random.Below(kCount)];
}

double Number(Client* client) {
  constexpr double kNumbersOfInterest[] = {0.0,
                                           1.0,
                                           -1.0,
                                           0.5,
                                           1e-300,
                                           std::numeric_limits<double>::max(),
                                           std::numeric_limits<double>::infinity(),
                                           std::numeric_limits<double>::quiet_NaN()};
  return kNumbersOfInterest[client->random.Below(8)];
}

// Places for results lie in the first half of the scratch memory, arrays in the second.
const int* Numbers(Client* client) {
  static int numbers[8][kNumbers];
  int* const row = numbers[client->random.Below(8)];
  const bool hostile = client->random.Chance(30);
  for (int i = 0; i < kNumbers; ++i) {
    row[i] = hostile ? client->random.Int(3) : 1 + static_cast<int>(client->random.Below(3));
  }
  return row;
}

template <class T>
T Any(Client* client) {
  Random& random = client->random;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) {
    return random.Chance(3) ? nullptr : client->handle;
  } else if constexpr (std::is_same_v<T, cudnnTensorDescriptor_t>) {
    return Pick(client, client->tensors);
  } else if constexpr (std::is_same_v<T, cudnnFilterDescriptor_t>) {
    return Pick(client, client->filters);
  } else if constexpr (std::is_same_v<T, cudnnConvolutionDescriptor_t>) {
    return Pick(client, client->convolutions);
  } else if constexpr (std::is_same_v<T, cudnnActivationDescriptor_t>) {
    return Pick(client, client->activations);
  } else if constexpr (std::is_same_v<T, cudnnPoolingDescriptor_t>) {
    return Pick(client, client->poolings);
  } else if constexpr (std::is_same_v<T, cudnnOpTensorDescriptor_t>) {
    return Pick(client, client->operations);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(random.Chance(90) ? static_cast<int>(random.Below(4)) : random.Int());
  } else if constexpr (std::is_same_v<T, double>) {
    return Number(client);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random.Integer(4));
  } else if constexpr (std::is_same_v<T, const int*>) {
    return random.Chance(3) ? nullptr : Numbers(client);
  } else if constexpr (std::is_same_v<T, const void*> || std::is_same_v<T, void*>) {
    return random.Chance(3) ? nullptr : client->Data();
  } else {
    static_assert(std::is_pointer_v<T>);
    return random.Chance(3) ? nullptr : static_cast<T>(client->Scratch());
  }
}

template <class T>
bool IsSmall(Client* client, const T& argument) {
  if constexpr (std::is_same_v<T, cudnnTensorDescriptor_t> ||
                std::is_same_v<T, cudnnFilterDescriptor_t>) {
    return client->IsSmall(argument);
  } else {
    return true;
  }
}

// What computes is called where its tensors lie in memory that is there. The braces keep the order
// in which arguments are drawn.
template <class... Arguments>
void CallOne(Client* client, const char* name, OocFunction function, bool computes,
             cudnnStatus_t (*)(Arguments...)) {
  const std::tuple<Arguments...> arguments{Any<Arguments>(client)...};
  const bool small =
      std::apply([&](const auto&... each) { return (IsSmall(client, each) && ...); }, arguments);
  if (computes && !small) return;
  client->Now(name);
  const auto typed = reinterpret_cast<cudnnStatus_t (*)(Arguments...)>(function);
  const cudnnStatus_t status = client->Answered(std::apply(typed, arguments));
  if (computes && status == CUDNN_STATUS_SUCCESS) ++client->computed;
}

struct Entry {
  const char* name;
  void (*call)(Client* client, const char* name);
};

template <class Function, bool kComputes>
void CallTyped(Client* client, const char* name) {
  CallOne(client, name, client->Find(name), kComputes, static_cast<Function>(nullptr));
}

#define ASKS(name) {#name, CallTyped<decltype(&::name), false>}
#define COMPUTES(name) {#name, CallTyped<decltype(&::name), true>}
constexpr Entry kEntries[] = {
    ASKS(cudnnGetProperty),
    ASKS(cudnnSetStream),
    ASKS(cudnnGetStream),
    ASKS(cudnnSetTensor4dDescriptor),
    ASKS(cudnnSetTensor4dDescriptorEx),
    ASKS(cudnnGetTensor4dDescriptor),
    ASKS(cudnnSetTensorNdDescriptor),
    ASKS(cudnnSetTensorNdDescriptorEx),
    ASKS(cudnnGetTensorNdDescriptor),
    ASKS(cudnnGetTensorSizeInBytes),
    ASKS(cudnnSetFilter4dDescriptor),
    ASKS(cudnnGetFilter4dDescriptor),
    ASKS(cudnnSetFilterNdDescriptor),
    ASKS(cudnnGetFilterNdDescriptor),
    ASKS(cudnnGetFilterSizeInBytes),
    ASKS(cudnnSetConvolution2dDescriptor),
    ASKS(cudnnGetConvolution2dDescriptor),
    ASKS(cudnnSetConvolutionNdDescriptor),
    ASKS(cudnnGetConvolutionNdDescriptor),
    ASKS(cudnnSetConvolutionGroupCount),
    ASKS(cudnnGetConvolutionGroupCount),
    ASKS(cudnnSetConvolutionMathType),
    ASKS(cudnnGetConvolutionMathType),
    ASKS(cudnnSetConvolutionReorderType),
    ASKS(cudnnGetConvolutionReorderType),
    ASKS(cudnnGetConvolution2dForwardOutputDim),
    ASKS(cudnnGetConvolutionNdForwardOutputDim),
    ASKS(cudnnSetActivationDescriptor),
    ASKS(cudnnGetActivationDescriptor),
    ASKS(cudnnSetActivationDescriptorSwishBeta),
    ASKS(cudnnGetActivationDescriptorSwishBeta),
    ASKS(cudnnSetPooling2dDescriptor),
    ASKS(cudnnGetPooling2dDescriptor),
    ASKS(cudnnSetPoolingNdDescriptor),
    ASKS(cudnnGetPoolingNdDescriptor),
    ASKS(cudnnGetPooling2dForwardOutputDim),
    ASKS(cudnnGetPoolingNdForwardOutputDim),
    ASKS(cudnnSetOpTensorDescriptor),
    ASKS(cudnnGetOpTensorDescriptor),
    ASKS(cudnnDeriveBNTensorDescriptor),
    ASKS(cudnnGetConvolutionForwardAlgorithmMaxCount),
    ASKS(cudnnGetConvolutionForwardAlgorithm_v7),
    ASKS(cudnnFindConvolutionForwardAlgorithm),
    ASKS(cudnnFindConvolutionForwardAlgorithmEx),
    ASKS(cudnnGetConvolutionForwardWorkspaceSize),
    ASKS(cudnnGetConvolutionBackwardDataAlgorithmMaxCount),
    ASKS(cudnnGetConvolutionBackwardDataAlgorithm_v7),
    ASKS(cudnnFindConvolutionBackwardDataAlgorithm),
    ASKS(cudnnFindConvolutionBackwardDataAlgorithmEx),
    ASKS(cudnnGetConvolutionBackwardDataWorkspaceSize),
    ASKS(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount),
    ASKS(cudnnGetConvolutionBackwardFilterAlgorithm_v7),
    ASKS(cudnnFindConvolutionBackwardFilterAlgorithm),
    ASKS(cudnnFindConvolutionBackwardFilterAlgorithmEx),
    ASKS(cudnnGetConvolutionBackwardFilterWorkspaceSize),
    COMPUTES(cudnnConvolutionForward),
    COMPUTES(cudnnConvolutionBiasActivationForward),
    COMPUTES(cudnnConvolutionBackwardData),
    COMPUTES(cudnnConvolutionBackwardFilter),
    COMPUTES(cudnnConvolutionBackwardBias),
    COMPUTES(cudnnAddTensor),
    COMPUTES(cudnnOpTensor),
    COMPUTES(cudnnSetTensor),
    COMPUTES(cudnnScaleTensor),
    COMPUTES(cudnnTransformTensor),
    COMPUTES(cudnnActivationForward),
    COMPUTES(cudnnActivationBackward),
    COMPUTES(cudnnPoolingForward),
    COMPUTES(cudnnPoolingBackward),
    COMPUTES(cudnnSoftmaxForward),
    COMPUTES(cudnnSoftmaxBackward),
    COMPUTES(cudnnBatchNormalizationForwardInference),
};

// As the type wants it, in memory of a double.
const void* Factor(cudnnDataType_t dtype, double value) {
  static double places[2];
  static size_t next = 0;
  double& place = places[next++ % 2];
  place = value;
  if (dtype != CUDNN_DATA_DOUBLE) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(&place, &narrow, sizeof narrow);
  }
  return &place;
}

// A size that is told is one that an int64 holds.
void CheckSizes(Client* client) {
  for (const cudnnTensorDescriptor_t tensor : client->tensors) {
    size_t bytes = 0;
    if (OOC_CUDNN(*client, cudnnGetTensorSizeInBytes)(tensor, &bytes) != CUDNN_STATUS_SUCCESS) {
      continue;
    }
    client->Expect(bytes < static_cast<size_t>(INT64_MAX), "a size past 2^63");
  }
}

// All tensors get one shape, so that what computes has operands that fit.
void ShapeAlike(Client* client) {
  Random& random = client->random;
  std::array<int, 4> dims{};
  for (int& extent : dims) extent = 1 + static_cast<int>(random.Below(4));
  const auto dtype = static_cast<cudnnDataType_t>(random.Below(3));
  const auto format = static_cast<cudnnTensorFormat_t>(random.Below(2));
  for (const cudnnTensorDescriptor_t tensor : client->tensors) {
    client->Answered(
        OOC_CUDNN(*client, cudnnSetTensorNdDescriptorEx)(tensor, format, dtype, 4, dims.data()));
  }
}

}  // namespace

void CallLegacy(Client* client) {
  Random& random = client->random;
  if (random.Below(200) == 0) ShapeAlike(client);
  if (random.Below(500) == 0) CheckSizes(client);
  const Entry& entry = kEntries[random.Below(std::size(kEntries))];
  entry.call(client, entry.name);
}

// The operands of one convolution are set in the first places of the pools, the calls drawn as
// ever: they are its own more often than not.
void CallConvolution(Client* client) {
  Random& random = client->random;
  const int spatial = 1 + static_cast<int>(random.Below(3)), rank = spatial + 2;
  const auto small = [&](size_t most) { return 1 + static_cast<int>(random.Below(most)); };
  const int groups = small(2);
  std::array<int, 5> x{small(2), groups * small(2)}, w{groups * small(2), x[1] / groups}, y{};
  std::array<int, 3> pad{}, stride{}, dilation{};
  for (int i = 0; i < spatial; ++i) {
    x[static_cast<size_t>(i) + 2] = small(4);
    w[static_cast<size_t>(i) + 2] = small(3);
    pad[static_cast<size_t>(i)] = small(3) - 1;
    stride[static_cast<size_t>(i)] = small(3);
    dilation[static_cast<size_t>(i)] = small(2);
  }
  if (random.Chance(30)) {
    int* const places[] = {x.data(), w.data(), pad.data(), stride.data(), dilation.data()};
    places[random.Below(std::size(places))][random.Below(3)] = random.Int(64);
  }
  const auto dtype = static_cast<cudnnDataType_t>(random.Below(3));
  const auto format = static_cast<cudnnTensorFormat_t>(random.Below(2));
  const auto mode = static_cast<cudnnConvolutionMode_t>(random.Below(2));
  const cudnnConvolutionDescriptor_t window = client->convolutions[0];
  client->Answered(OOC_CUDNN(*client, cudnnSetConvolutionNdDescriptor)(
      window, spatial, pad.data(), stride.data(), dilation.data(), mode, CUDNN_DATA_FLOAT));
  client->Answered(OOC_CUDNN(*client, cudnnSetConvolutionGroupCount)(window, groups));
  client->Answered(OOC_CUDNN(*client, cudnnSetTensorNdDescriptorEx)(client->tensors[0], format,
                                                                    dtype, rank, x.data()));
  client->Answered(OOC_CUDNN(*client, cudnnSetFilterNdDescriptor)(client->filters[0], dtype, format,
                                                                  rank, w.data()));
  if (client->Answered(OOC_CUDNN(*client, cudnnGetConvolutionNdForwardOutputDim)(
          window, client->tensors[0], client->filters[0], rank, y.data())) !=
      CUDNN_STATUS_SUCCESS) {
    return;
  }
  client->Answered(OOC_CUDNN(*client, cudnnSetTensorNdDescriptorEx)(client->tensors[1], format,
                                                                    dtype, rank, y.data()));
  size_t bytes = 0;
  client->Answered(OOC_CUDNN(*client, cudnnGetConvolutionForwardWorkspaceSize)(
      client->handle, client->tensors[0], client->filters[0], window, client->tensors[1],
      CUDNN_CONVOLUTION_FWD_ALGO_GEMM, &bytes));
  const bool adds = random.Chance(50);
  const void* const a = Factor(dtype, 2.0);
  const void* const b = Factor(dtype, adds ? 1.0 : 0.0);
  if (random.Chance(20)) CallLegacy(client);  // which may change one of them
  if (!client->IsSmall(client->tensors[0]) || !client->IsSmall(client->tensors[1]) ||
      !client->IsSmall(client->filters[0])) {
    return;
  }
  void* const xd = random.Chance(5) ? nullptr : client->Data();
  void* const wd = random.Chance(5) ? nullptr : client->Data();
  void* const yd = random.Chance(5) ? nullptr : client->Data();
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (random.Below(3)) {
    case 0:
      status = OOC_CUDNN(*client, cudnnConvolutionForward)(
          client->handle, a, client->tensors[0], xd, client->filters[0], wd, window,
          CUDNN_CONVOLUTION_FWD_ALGO_GEMM, nullptr, 0, b, client->tensors[1], yd);
      break;
    case 1:
      status = OOC_CUDNN(*client, cudnnConvolutionBackwardData)(
          client->handle, a, client->filters[0], wd, client->tensors[1], yd, window,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, nullptr, 0, b, client->tensors[0], xd);
      break;
    default:
      status = OOC_CUDNN(*client, cudnnConvolutionBackwardFilter)(
          client->handle, a, client->tensors[0], xd, client->tensors[1], yd, window,
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, nullptr, 0, b, client->filters[0], wd);
  }
  if (client->Answered(status) == CUDNN_STATUS_SUCCESS) ++client->computed;
}

}  // namespace oocdnn::fuzz
