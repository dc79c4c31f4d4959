// Plans of the graph API where there is a GPU, when they are executed: those that were taken run
// through us, all others by where their operands are.
#include <cstdio>
#include <optional>

#include "shim/gpu_facts.hpp"
#include "shim/interception.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"
#include "shim/shadow.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

// The answer, or nothing where the call is the real library's. A plan that is
// taken never is: its client has the workspace that we said.
std::optional<cudnnStatus_t> RunPlan(cudnnHandle_t handle, const PlanShadow& plan,
                                     const NodePointer& pack, bool* must) {
  *must = plan.taken;
  const auto pass = [&](cudnnStatus_t status) {
    return *must ? std::optional(status) : std::nullopt;
  };
  if (pack == nullptr || pack->Find(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES) != nullptr ||
      pack->Find(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES) != nullptr) {
    return pass(Refuse(CUDNN_STATUS_NOT_SUPPORTED,
                       "this plan runs in tiles, with the shapes and the pack that it was told"));
  }
  ConvolutionCall call;
  cudnnStatus_t status = Bind(plan.pattern, *pack, &call);
  if (status != CUDNN_STATUS_SUCCESS) return pass(status);
  const char* const why = plan.taken ? plan.why : WhyTakenHere(call);
  if (why == nullptr) return std::nullopt;
  *must = plan.taken || OnlyWeReach(call);
  if (TheReal().cudnnGetStream == nullptr) {
    return pass(Refuse(CUDNN_STATUS_NOT_SUPPORTED, "the real library does not say its stream"));
  }
  const auto workspace = pack->Pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (plan.taken && !workspace.empty() && workspace.front() != nullptr) {
    call.workspace = workspace.front();
    call.workspace_bytes = plan.scratch_bytes;
  }
  call.device = CurrentDevice();
  status = TheReal().cudnnGetStream(handle, &call.stream);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  return RunTaken(call, why, must);
}

cudnnStatus_t Execute(cudnnHandle_t handle, Descriptor plan, Descriptor pack) {
  const auto answer = Decided([&](bool* must) -> std::optional<cudnnStatus_t> {
    const PlanPointer known = Look(plan).plan;
    if (known == nullptr) return std::nullopt;
    return RunPlan(handle, *known, Look(pack).node, must);
  });
  return answer ? *answer : TheReal().cudnnBackendExecute(handle, plan, pack);
}

bool IsTaken(Descriptor plan) {
  const PlanPointer known = Look(plan).plan;
  return known != nullptr && known->taken;
}

cudnnStatus_t WorkspaceSize(cudnnHandle_t handle, Descriptor plan, Descriptor pack, size_t* bytes) {
  if (!IsTaken(plan) || bytes == nullptr) {
    return TheReal().cudnnGetExecutionPlanWorkspaceSize(handle, plan, pack, bytes);
  }
  *bytes = static_cast<size_t>(Look(plan).plan->scratch_bytes);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t RefuseCudaGraph() {
  return Ours(Refuse(CUDNN_STATUS_NOT_SUPPORTED,
                     "this plan runs in tiles, of which no CUDA graph can be made"));
}

cudnnStatus_t PopulateCudaGraph(cudnnHandle_t handle, Descriptor plan, Descriptor pack,
                                cudaGraph_t graph) {
  if (IsTaken(plan)) return RefuseCudaGraph();
  return TheReal().cudnnBackendPopulateCudaGraph(handle, plan, pack, graph);
}

cudnnStatus_t UpdateCudaGraph(cudnnHandle_t handle, Descriptor plan, Descriptor pack,
                              cudaGraph_t graph) {
  if (IsTaken(plan)) return RefuseCudaGraph();
  return TheReal().cudnnBackendUpdateCudaGraph(handle, plan, pack, graph);
}

void GetLastErrorString(char* message, size_t bytes) {
  if (!WeFailed() || message == nullptr || bytes == 0) {
    return TheReal().cudnnGetLastErrorString(message, bytes);
  }
  std::snprintf(message, bytes, "%s", LastText());
}

}  // namespace

void ServeInterceptedPlans(Served* served) {
  OOC_SERVE(served, cudnnGetLastErrorString, GetLastErrorString);
  OOC_SERVE(served, cudnnBackendExecute, Execute);
  OOC_SERVE(served, cudnnGetExecutionPlanWorkspaceSize, WorkspaceSize);
  OOC_SERVE(served, cudnnBackendPopulateCudaGraph, PopulateCudaGraph);
  OOC_SERVE(served, cudnnBackendUpdateCudaGraph, UpdateCudaGraph);
}

}  // namespace oocdnn::shim
