#include "shim/convolve.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/numbers.hpp"
#include "base/process_lock.hpp"
#include "capi/oocdnn.h"
#include "capi/translate.hpp"
#include "shim/layers.hpp"

namespace oocdnn::shim {
namespace {

// A call in the terms of the C API.
struct Translated {
  oocdnn_convolution convolution{};
  oocdnn_tensor x{}, w{}, y{}, bias{}, scale{}, residual{};
  oocdnn_operands operands{};
};

int32_t TypeOf(cudnnDataType_t dtype) {
  switch (dtype) {
    case CUDNN_DATA_FLOAT: return OOCDNN_FLOAT32;
    case CUDNN_DATA_DOUBLE: return OOCDNN_FLOAT64;
    case CUDNN_DATA_HALF: return OOCDNN_FLOAT16;
    case CUDNN_DATA_BFLOAT16: return OOCDNN_BFLOAT16;
    default: return -1;
  }
}

oocdnn_tensor TensorOf(cudnnDataType_t dtype, int rank, const Axes& dims, const Axes& stride,
                       void* data) {
  oocdnn_tensor tensor{};
  tensor.data = data;
  tensor.fd = -1;
  tensor.dtype = TypeOf(dtype);
  tensor.rank = rank;
  for (int i = 0; i < rank && i < 5; ++i) {
    tensor.shape[i] = dims[i];
    tensor.stride[i] = stride[i];
  }
  return tensor;
}

oocdnn_tensor TensorOf(const TensorArgument& argument) {
  const TensorValue& value = argument.value;
  return TensorOf(value.dtype, value.rank, value.dims, value.stride, argument.data);
}

// The one axis of a bias: a tensor of 1 C 1 1.
oocdnn_tensor VectorOf(const TensorArgument& argument) {
  const TensorValue& value = argument.value;
  return TensorOf(value.dtype, 1, {value.dims[1]}, {value.dims[1] > 1 ? value.stride[1] : 1},
                  argument.data);
}

void SetWindow(const ConvolutionCall& call, oocdnn_convolution* out) {
  const ConvolutionValue& from = call.convolution;
  for (int i = 0; i < from.rank && i < 3; ++i) {
    const int axis = 3 - from.rank + i;
    out->pad_before[axis] = from.pad[i];
    out->pad_after[axis] = from.pad_after[i];
    out->stride[axis] = from.stride[i];
    out->dilation[axis] = from.dilation[i];
  }
  out->groups = from.groups;
  out->mode = from.mode == CUDNN_CONVOLUTION ? OOCDNN_CONVOLUTION : OOCDNN_CROSS_CORRELATION;
  out->math = from.math == CUDNN_FMA_MATH ? OOCDNN_MATH_FP32 : OOCDNN_MATH_TF32;
}

cudnnStatus_t CheckRanks(const ConvolutionCall& call) {
  const TensorValue &x = call.x.value, &y = call.y.value;
  if (y.rank < 3 || y.rank > 5) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d axes; 3, 4 or 5 are possible", y.rank);
  }
  for (const TensorValue* vector : {&call.bias.value, &call.scale.value}) {
    if (vector->rank == 0) continue;
    bool one = true;
    for (int i = 0; i < vector->rank; ++i) one = one && (i == 1 || vector->dims[i] == 1);
    OOC_NEED(one && vector->rank == y.rank, "bias or scale has extents beside the channels'");
  }
  if (call.direction == Direction::kBackwardBias) return CUDNN_STATUS_SUCCESS;
  OOC_NEED(x.rank == y.rank && call.w.rank == y.rank && call.convolution.rank == y.rank - 2,
           "x has %d axes, w %d, y %d, the convolution %d spatial ones", x.rank, call.w.rank,
           y.rank, call.convolution.rank);
  return CUDNN_STATUS_SUCCESS;
}

// cuDNN has types that we have not.
cudnnStatus_t CheckTypes(const ConvolutionCall& call) {
  for (const cudnnDataType_t dtype :
       {call.x.value.dtype, call.w.dtype, call.y.value.dtype, call.bias.value.dtype,
        call.scale.value.dtype, call.residual.value.dtype}) {
    if (TypeOf(dtype) < 0) {
      return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "the element type %d", static_cast<int>(dtype));
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t TranslateCall(const ConvolutionCall& call, Translated* out) {
  OOC_CUDNN_TRY(CheckRanks(call));
  OOC_CUDNN_TRY(CheckTypes(call));
  const bool bias_only = call.direction == Direction::kBackwardBias;
  out->convolution =
      oocdnn_default_convolution(static_cast<int32_t>(call.direction), call.y.value.rank - 2);
  if (!bias_only) SetWindow(call, &out->convolution);
  out->convolution.alpha = call.alpha;
  out->convolution.beta = call.beta;
  out->convolution.residual_alpha = call.residual_alpha;
  out->convolution.activation = static_cast<int32_t>(call.activation.kind);
  out->convolution.activation_parameter = call.activation.parameter;
  out->convolution.stream = call.stream;
  out->convolution.workspace = call.workspace;
  out->convolution.workspace_bytes = call.workspace_bytes;
  out->convolution.workspace_limit = call.workspace_limit;
  out->y = TensorOf(call.y);
  out->operands.y = &out->y;
  if (!bias_only) {
    out->x = TensorOf(call.x);
    out->w = TensorOf(call.w.dtype, call.w.rank, call.w.dims, call.w.stride, call.w_data);
    out->operands.x = &out->x;
    out->operands.w = &out->w;
  }
  if (call.bias.value.rank > 0) {
    out->bias = VectorOf(call.bias);
    out->operands.bias = &out->bias;
  }
  if (call.scale.value.rank > 0) {
    out->scale = VectorOf(call.scale);
    out->operands.scale = &out->scale;
  }
  if (call.residual.value.rank > 0) {
    OOC_NEED(call.residual.value.rank == call.y.value.rank, "z and y differ in their axes");
    out->residual = TensorOf(call.residual);
    out->operands.residual = &out->residual;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t AnswerOf(oocdnn_status status) {
  return StatusOf(status == OOCDNN_OK ? Status()
                                      : Status(static_cast<Code>(status), oocdnn_last_error()));
}

// The context of this process for one device; with its lock held. Never destroyed, because programs
// compute until their very end.
struct Shared {
  ProcessLock lock;
  oocdnn_context* context = nullptr;
};

constexpr int kMostDevices = 64;

Shared& SharedOf(int device) {
  static auto* const shared = new std::array<Shared, kMostDevices + 1>;
  const int place = std::clamp(device, kCpu, kMostDevices - 1) - kCpu;
  return (*shared)[static_cast<size_t>(place)];
}

cudnnStatus_t Open(int device, Shared* shared) {
  if (shared->context != nullptr) return CUDNN_STATUS_SUCCESS;
  oocdnn_options options = oocdnn_default_options();
  const std::string name = device == kCpu ? "cpu" : Format("cuda:%d", device);
  // Where nobody says, the client's own tensors come first on a GPU.
  const std::string budget = Get(Var::kBudget).value_or("2GiB");
  const auto layer = LayerWorkspace();
  const std::string workspace = layer ? NumberText(*layer) : "";
  options.device = name.c_str();
  options.workspace = workspace.c_str();
  if (device != kCpu) options.budget = budget.c_str();
  // Where memory spills, a problem's operands lie elsewhere at each step for a while, and each of
  // its calls is short.
  if (!Get(Var::kPlanning)) options.planning = "gradual";
  return AnswerOf(oocdnn_create(&options, &shared->context));
}

void LogTaken(oocdnn_context* context, const Translated& call, const char* why) {
  if (!Logs(LogLevel::kInfo)) return;
  oocdnn_stats stats{};
  const char* problem = "";
  if (oocdnn_problem_text(&call.convolution, &call.operands, &problem) != OOCDNN_OK) return;
  if (oocdnn_get_stats(context, &stats) != OOCDNN_OK) return;
  Log(LogLevel::kInfo,
      "taken %s tiles=%lld peak=%s h2d=%s d2h=%s ms=%.3f predicted=%.3f planned=%.3f prepared=%lld "
      "why=%s",
      problem, static_cast<long long>(stats.tiles), BytesText(stats.peak_device_bytes).c_str(),
      BytesText(stats.bytes_h2d).c_str(), BytesText(stats.bytes_d2h).c_str(), stats.seconds * 1e3,
      stats.predicted_seconds * 1e3, stats.planning_seconds * 1e3,
      static_cast<long long>(stats.prepared), why);
}

}  // namespace

cudnnStatus_t Check(const ConvolutionCall& call) {
  Translated translated;
  OOC_CUDNN_TRY(TranslateCall(call, &translated));
  const Result<CallArguments> arguments =
      Translate(&translated.convolution, &translated.operands, Math::kFp32);
  if (!arguments.ok()) return StatusOf(arguments.status());
  return StatusOf(Validate(arguments.value().problem));
}

cudnnStatus_t Prepare(const ConvolutionCall& call) {
  OOC_CUDNN_TRY(Check(call));
  Shared& shared = SharedOf(call.device);
  const std::lock_guard turn(shared.lock);
  return Open(call.device, &shared);
}

cudnnStatus_t Run(const ConvolutionCall& call, const char* why) {
  Translated translated;
  OOC_CUDNN_TRY(TranslateCall(call, &translated));
  Shared& shared = SharedOf(call.device);
  const std::lock_guard turn(shared.lock);
  OOC_CUDNN_TRY(Open(call.device, &shared));
  OOC_CUDNN_TRY(
      AnswerOf(oocdnn_run(shared.context, &translated.convolution, &translated.operands)));
  LogTaken(shared.context, translated, why);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t PlanInCore(const ConvolutionCall& call, int64_t budget, int64_t* bytes) {
  Translated translated;
  OOC_CUDNN_TRY(TranslateCall(call, &translated));
  Shared& shared = SharedOf(call.device);
  const std::lock_guard turn(shared.lock);
  OOC_CUDNN_TRY(Open(call.device, &shared));
  OOC_CUDNN_TRY(AnswerOf(oocdnn_plan_in_core(shared.context, &translated.convolution,
                                             &translated.operands, budget, bytes)));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t MeasureOptions(int device, const std::string& problem,
                             std::vector<oocdnn_workspace_option>* options) {
  const oocdnn_micro_batch* parts = nullptr;
  const oocdnn_division* divisions = nullptr;
  int64_t count = 0, batch = 0, length = 0;
  Shared& shared = SharedOf(device);
  const std::lock_guard turn(shared.lock);
  OOC_CUDNN_TRY(Open(device, &shared));
  OOC_CUDNN_TRY(AnswerOf(oocdnn_measure_parts(
      shared.context, problem.c_str(), OOCDNN_BATCH_POLICY_POWERS_OF_TWO, &parts, &count, &batch)));
  OOC_CUDNN_TRY(AnswerOf(oocdnn_even_divisions(parts, count, batch, &divisions, &length)));
  for (int64_t i = 0; i < length; ++i) {
    options->push_back({divisions[i].seconds, divisions[i].workspace_bytes});
  }
  return CUDNN_STATUS_SUCCESS;
}

std::string ProblemText(const ConvolutionCall& call) {
  Translated translated;
  const char* text = "";
  if (TranslateCall(call, &translated) != CUDNN_STATUS_SUCCESS ||
      oocdnn_problem_text(&translated.convolution, &translated.operands, &text) != OOCDNN_OK) {
    return "";
  }
  return text;
}

double ScalarOf(const void* factor, cudnnDataType_t dtype) {
  if (dtype == CUDNN_DATA_DOUBLE) return *static_cast<const double*>(factor);
  return static_cast<double>(*static_cast<const float*>(factor));
}

}  // namespace oocdnn::shim
