#include "shim/graph_judge.hpp"

#include <algorithm>
#include <iterator>

#include "base/log.hpp"
#include "shim/gpu_facts.hpp"
#include "shim/interception.hpp"
#include "shim/real.hpp"

namespace oocdnn::shim {
namespace {

// Whether executions may bring shapes that differ from those of the graph.
bool ShapesMayChange(const Node& graph) {
  return graph.Integer(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED).value_or(0) != 0 ||
         graph.Integer(CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED).value_or(0) != 0;
}

}  // namespace

EngineNotes NotesOf(cudnnBackendDescriptor_t config) {
  const Real& real = TheReal();
  cudnnBackendDescriptor_t engine = nullptr;
  if (real.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
      CUDNN_STATUS_SUCCESS) {
    return {};
  }
  cudnnBackendNumericalNote_t notes[32];
  int64_t count = 0;
  const bool known = real.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                                   &engine) == CUDNN_STATUS_SUCCESS &&
                     real.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                   CUDNN_TYPE_NUMERICAL_NOTE, std::size(notes),
                                                   &count, notes) == CUDNN_STATUS_SUCCESS;
  static_cast<void>(real.cudnnBackendDestroyDescriptor(engine));
  if (!known) return {};
  const int64_t given = std::clamp<int64_t>(count, 0, std::size(notes));
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes, notes + given, note) != notes + given;
  };
  return {.tensor_cores = has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE),
          .plain = !has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
                   !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
                   !has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)};
}

int64_t WorkspaceOf(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
  int64_t bytes = 0, count = 0;
  const cudnnStatus_t status =
      TheReal().cudnnBackendGetAttribute(descriptor, name, CUDNN_TYPE_INT64, 1, &count, &bytes);
  return status == CUDNN_STATUS_SUCCESS && count == 1 ? bytes : -1;
}

std::shared_ptr<PlanShadow> Judge(const Node& graph, bool tensor_cores, int64_t workspace,
                                  bool no_engine) {
  Result<GraphPattern> pattern = Recognize(graph);
  if (!pattern.ok()) {
    Log(LogLevel::kDebug, "passed: %s", pattern.status().message().c_str());
    return nullptr;
  }
  auto plan = std::make_shared<PlanShadow>();
  plan->pattern = std::move(pattern).value();
  ConvolutionCall& call = plan->pattern.call;
  call.device = CurrentDevice();
  call.convolution.math = tensor_cores ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  const char* why = WhyTaken(call, workspace);
  if (why == nullptr && no_engine) why = "no-engine";
  if (why == nullptr || ShapesMayChange(graph)) return plan;
  if (const auto bytes = ScratchBytes(call)) {
    plan->taken = true;
    plan->scratch_bytes = *bytes;
    plan->why = why;
  }
  return plan;
}

std::shared_ptr<PlanShadow> JudgeConfiguration(const Node& graph, cudnnBackendDescriptor_t config) {
  const int64_t workspace = WorkspaceOf(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
  if (workspace < 0) return nullptr;
  const Result<GraphPattern> pattern = Recognize(graph);
  if (!pattern.ok() || WhyTaken(pattern.value().call, workspace) == nullptr) return nullptr;
  auto plan = Judge(graph, NotesOf(config).tensor_cores, workspace, false);
  return plan != nullptr && plan->taken ? plan : nullptr;
}

}  // namespace oocdnn::shim
