// One convolution of a client's, as values, on its way to the C API.
#pragma once

#include <string>
#include <vector>

#include "capi/oocdnn.h"
#include "shim/answer.hpp"
#include "shim/values.hpp"

namespace oocdnn::shim {

enum class Direction { kForward, kBackwardData, kBackwardFilter, kBackwardBias };

constexpr int kCpu = -1;                 // in the place of a GPU's ordinal
constexpr int64_t kLimitOfContext = -1;  // in the place of a call's own limit

// A tensor and where it lies. Unused ones keep rank 0.
struct TensorArgument {
  TensorValue value;
  void* data = nullptr;
};

// y = activation(alpha * conv(x, w) * scale + bias + residual_alpha * residual + beta * y), or a
// gradient: x, y are dx, dy then, and w is dw; the bias of kBackwardBias is db.
struct ConvolutionCall {
  Direction direction = Direction::kForward;
  TensorArgument x, y, bias, scale, residual;
  FilterValue w;
  void* w_data = nullptr;
  ConvolutionValue convolution;
  CallActivation activation;
  double alpha = 1.0, beta = 0.0, residual_alpha = 1.0;
  cudaStream_t stream = nullptr;
  int device = kCpu;
  // Device memory to use in the stream's order, of at least the bytes of PlanInCore; or none.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  int64_t workspace_limit = kLimitOfContext;  // of an engine's workspace
};

// Everything but the pointers: BAD_PARAM for shapes and types that do not go together.
cudnnStatus_t Check(const ConvolutionCall& call);

// Check, and the process's context for the device is there.
cudnnStatus_t Prepare(const ConvolutionCall& call);

// Runs it on the process's context for the device, which is made at the first call and kept. `why`
// is for the log.
cudnnStatus_t Run(const ConvolutionCall& call, const char* why);

// The bytes of workspace with which Run needs no other device memory, all operands on the device.
cudnnStatus_t PlanInCore(const ConvolutionCall& call, int64_t budget, int64_t* bytes);

// The ways to run a problem, as logs name it, that are worth having, its operands on the device:
// runs are timed on the process's context. The fastest comes first, and each needs less workspace
// than the one before.
cudnnStatus_t MeasureOptions(int device, const std::string& problem,
                             std::vector<oocdnn_workspace_option>* options);

// The problem as logs name it; "" where it cannot be said.
std::string ProblemText(const ConvolutionCall& call);

// A scaling factor of the legacy interface: a double where the tensors are, else a float.
double ScalarOf(const void* factor, cudnnDataType_t dtype);

}  // namespace oocdnn::shim
