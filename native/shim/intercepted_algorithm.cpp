// What the real library says of algorithms and their workspaces where there is a GPU: a workspace
// that is too large becomes the one that our tiles need. What would be tried on operands that no
// GPU reads is listed as it is without them.
#include <algorithm>
#include <initializer_list>
#include <string>

#include "shim/gpu_facts.hpp"
#include "shim/interception.hpp"
#include "shim/large_tensor.hpp"
#include "shim/legacy_directions.hpp"
#include "shim/legacy_interception.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

// Problems that cannot be read are left as they are.
bool ReadProblem(cudnnHandle_t handle, Direction direction, const LegacyOperands& operands,
                 ConvolutionCall* problem) {
  return Read(handle, direction, operands, problem) == CUDNN_STATUS_SUCCESS;
}

bool AnyPageable(std::initializer_list<const void*> pointers) {
  return std::any_of(pointers.begin(), pointers.end(), [](const void* pointer) {
    return pointer != nullptr && TierOf(pointer) == Tier::kPageable;
  });
}

cudnnStatus_t RefuseTrial() {
  return Ours(Refuse(CUDNN_STATUS_NOT_SUPPORTED, "algorithms are not tried on host operands"));
}

bool AnyLargeOf(const LegacyOperands& operands) {
  return AnyLarge() && (IsLarge(operands.x_desc) || IsLarge(operands.y_desc));
}

// The workspace for large tensors, of which the real library knows nothing.
cudnnStatus_t SizeLarge(cudnnHandle_t handle, Direction direction, const LegacyOperands& operands,
                        ConvolutionCall* problem, size_t* bytes) {
  OOC_CUDNN_TRY(Read(handle, direction, operands, problem));
  OOC_CUDNN_TRY(Check(*problem));
  const auto scratch = ScratchBytes(*problem);
  if (!scratch) {
    const std::string why = LastText();
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "no tiles for 2^31 elements: %s", why.c_str());
  }
  Announce(*problem, -1, *scratch);
  *bytes = static_cast<size_t>(*scratch);
  return CUDNN_STATUS_SUCCESS;
}

// One algorithm, whichever a client then passes.
template <class D>
cudnnStatus_t ListLarge(cudnnHandle_t handle, const LegacyOperands& operands, int requested,
                        int* returned, typename D::Performance* results) {
  return Ours(Serve([&] {
    OOC_CUDNN_TRY(NeedPlaces(requested, returned, results));
    ConvolutionCall problem;
    size_t bytes = 0;
    OOC_CUDNN_TRY(SizeLarge(handle, D::kDirection, operands, &problem, &bytes));
    return GiveOne<D>(bytes, problem.convolution.math, returned, results);
  }));
}

template <class Performance>
cudnnStatus_t Listed(cudnnStatus_t status, cudnnHandle_t handle, Direction direction,
                     const LegacyOperands& operands, const int* returned, Performance* results) {
  Passed();
  if (status != CUDNN_STATUS_SUCCESS || returned == nullptr || results == nullptr) return status;
  static_cast<void>(Serve([&] {
    ConvolutionCall problem;
    if (!ReadProblem(handle, direction, operands, &problem)) return CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < *returned; ++i) {
      if (results[i].status != CUDNN_STATUS_SUCCESS) continue;
      // Some clients set the listed math type before they compute, others keep theirs.
      size_t listed = results[i].memory, kept = results[i].memory;
      const cudnnMathType_t math = problem.convolution.math;
      TakeWorkspace(problem, results[i].algo, &kept);
      problem.convolution.math = results[i].mathType;
      TakeWorkspace(problem, results[i].algo, &listed);
      problem.convolution.math = math;
      results[i].memory = std::max(listed, kept);
    }
    return CUDNN_STATUS_SUCCESS;
  }));
  return status;
}

cudnnStatus_t Sized(cudnnStatus_t status, cudnnHandle_t handle, Direction direction,
                    const LegacyOperands& operands, int algorithm, size_t* bytes) {
  Passed();
  if (status != CUDNN_STATUS_SUCCESS || bytes == nullptr) return status;
  static_cast<void>(Serve([&] {
    ConvolutionCall problem;
    if (ReadProblem(handle, direction, operands, &problem)) {
      TakeWorkspace(problem, algorithm, bytes);
    }
    return CUDNN_STATUS_SUCCESS;
  }));
  return status;
}

// What only lists a direction's algorithms and what times them have the same arguments.
template <class D, auto kFunction>
cudnnStatus_t List(cudnnHandle_t handle, typename D::First first, typename D::Second second,
                   cudnnConvolutionDescriptor_t convolution, typename D::Last last, int requested,
                   int* returned, typename D::Performance* results) {
  const LegacyOperands operands = D::Operands(first, second, convolution, last);
  if (AnyLargeOf(operands)) return ListLarge<D>(handle, operands, requested, returned, results);
  const cudnnStatus_t status = (TheReal().*kFunction)(handle, first, second, convolution, last,
                                                      requested, returned, results);
  return Listed(status, handle, D::kDirection, operands, returned, results);
}

template <class D>
cudnnStatus_t Try(cudnnHandle_t handle, typename D::First first, const void* first_data,
                  typename D::Second second, const void* second_data,
                  cudnnConvolutionDescriptor_t convolution, typename D::Last last, void* last_data,
                  int requested, int* returned, typename D::Performance* results, void* workspace,
                  size_t bytes) {
  const LegacyOperands operands = D::Operands(first, second, convolution, last);
  if (AnyLargeOf(operands) || AnyPageable({first_data, second_data, last_data})) {
    if (TheReal().*D::kList == nullptr) return RefuseTrial();
    return List<D, D::kList>(handle, first, second, convolution, last, requested, returned,
                             results);
  }
  const cudnnStatus_t status =
      (TheReal().*D::kTry)(handle, first, first_data, second, second_data, convolution, last,
                           last_data, requested, returned, results, workspace, bytes);
  return Listed(status, handle, D::kDirection, operands, returned, results);
}

template <class D>
cudnnStatus_t Size(cudnnHandle_t handle, typename D::First first, typename D::Second second,
                   cudnnConvolutionDescriptor_t convolution, typename D::Last last,
                   typename D::Algorithm algorithm, size_t* bytes) {
  const LegacyOperands operands = D::Operands(first, second, convolution, last);
  if (AnyLargeOf(operands)) {
    return Ours(Serve([&] {
      OOC_NEED(bytes != nullptr, "the place for the size is null");
      ConvolutionCall problem;
      return SizeLarge(handle, D::kDirection, operands, &problem, bytes);
    }));
  }
  const cudnnStatus_t status =
      (TheReal().*D::kSize)(handle, first, second, convolution, last, algorithm, bytes);
  return Sized(status, handle, D::kDirection, operands, algorithm, bytes);
}

}  // namespace

void ServeInterceptedAlgorithms(Served* served) {
  OOC_SERVE(served, cudnnGetConvolutionForwardAlgorithm_v7, (List<Forward, Forward::kList>));
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithm, (List<Forward, Forward::kFind>));
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithmEx, Try<Forward>);
  OOC_SERVE(served, cudnnGetConvolutionForwardWorkspaceSize, Size<Forward>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataAlgorithm_v7,
            (List<BackwardData, BackwardData::kList>));
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithm,
            (List<BackwardData, BackwardData::kFind>));
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithmEx, Try<BackwardData>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataWorkspaceSize, Size<BackwardData>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterAlgorithm_v7,
            (List<BackwardFilter, BackwardFilter::kList>));
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithm,
            (List<BackwardFilter, BackwardFilter::kFind>));
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithmEx, Try<BackwardFilter>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterWorkspaceSize, Size<BackwardFilter>);
}

}  // namespace oocdnn::shim
