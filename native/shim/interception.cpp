#include "shim/interception.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "shim/gpu_facts.hpp"
#include "shim/layers.hpp"

namespace oocdnn::shim {
namespace {

// A workspace above this is worth avoiding, where nobody says how much is.
constexpr int64_t kMostWorkspace = int64_t{4} << 30;
// What our own tiles take then: enough for them to be large.
constexpr int64_t kOwnBudget = int64_t{2} << 30;

// The variable's bytes; nothing where it is not set, or where it says none.
std::optional<int64_t> GivenBudget() {
  const auto text = Get(Var::kBudget);
  if (!text) return std::nullopt;
  const Result<int64_t> bytes = ParseBudget(*text, FreeBytes());
  return bytes.ok() && bytes.value() > 0 ? std::optional(bytes.value()) : std::nullopt;
}

// The client's part of a limit within which its training is planned. The plan counts workspaces,
// and the client takes an engine with less where there is no room for one.
std::optional<int64_t> PlannedBytes() {
  const auto limit = Get(Var::kLimit);
  if (!limit || !Get(Var::kPlan)) return std::nullopt;
  const Result<int64_t> bytes = ParseBytes(*limit);
  if (!bytes.ok()) return std::nullopt;
  return std::max<int64_t>(bytes.value() - GivenBudget().value_or(0), 0);
}

// What the real library may want. Layers that share a workspace have nothing beside it.
int64_t MostWorkspace() {
  if (TotalWorkspace()) return 0;
  int64_t most = kMostWorkspace;
  if (const auto planned = PlannedBytes()) {
    most = *planned;
  } else if (const auto given = GivenBudget()) {
    most = *given;
  } else if (const int64_t free = FreeBytes(); free > 0) {
    most = std::min(most, free / 5 * 4);
  }
  return std::min(most, LayerWorkspace().value_or(most));
}

int64_t Elements(int rank, const Axes& dims) {
  int64_t elements = 1;
  for (int i = 0; i < rank; ++i) elements = Mul(elements, dims[i]);
  return elements;
}

template <class Is>
bool AnyTier(const ConvolutionCall& call, const Is& is) {
  for (const void* pointer :
       {static_cast<const void*>(call.x.data), static_cast<const void*>(call.y.data),
        static_cast<const void*>(call.w_data), static_cast<const void*>(call.bias.data),
        static_cast<const void*>(call.scale.data), static_cast<const void*>(call.residual.data)}) {
    if (pointer != nullptr && is(TierOf(pointer))) return true;
  }
  return false;
}

}  // namespace

int64_t BudgetBytes() { return GivenBudget().value_or(kOwnBudget); }

const char* WhyTaken(const ConvolutionCall& call, int64_t workspace) {
  if (workspace > MostWorkspace()) return "workspace";
  const int64_t largest = std::max({Elements(call.x.value.rank, call.x.value.dims),
                                    Elements(call.y.value.rank, call.y.value.dims),
                                    Elements(call.w.rank, call.w.dims)});
  return largest > INT32_MAX ? "2^31" : nullptr;
}

void Announce(const ConvolutionCall& call, int64_t workspace, int64_t ours) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const std::string instead =
      workspace >= 0 ? " in place of " + BytesText(workspace) : ", for which cuDNN has no plan";
  Log(LogLevel::kWarn, "%s runs in tiles, with a workspace of %s%s; OOCDNN_DISABLE=1 prevents it",
      ProblemText(call).c_str(), BytesText(ours).c_str(), instead.c_str());
}

const char* WhyTakenHere(const ConvolutionCall& call) {
  return AnyTier(call, [](Tier tier) { return tier == Tier::kPageable || tier == Tier::kPinned; })
             ? "host-operand"
             : nullptr;
}

bool OnlyWeReach(const ConvolutionCall& call) {
  return AnyTier(call, [](Tier tier) { return tier == Tier::kPageable; });
}

std::optional<cudnnStatus_t> RunTaken(ConvolutionCall call, const char* why, bool* must) {
  // Where device memory spills, a client's workspace may be host memory: tiles in it would cross
  // the wire with every access, so the context's own device memory serves.
  if (call.workspace != nullptr && TierOf(call.workspace) == Tier::kPinned) {
    call.workspace = nullptr;
    call.workspace_bytes = 0;
  }
  const bool capturing = IsCapturing(call.stream);
  if (!capturing && WhyTakenHere(call) == nullptr) call.workspace_limit = NextShareOf(call);
  if (*must) return Run(call, why);
  if (capturing || Prepare(call) != CUDNN_STATUS_SUCCESS) return std::nullopt;
  // What adds to what there was cannot be done twice.
  *must = call.beta != 0.0 || call.residual.data == call.y.data;
  const cudnnStatus_t status = Run(call, why);
  const bool refused = status == CUDNN_STATUS_BAD_PARAM || status == CUDNN_STATUS_NOT_SUPPORTED;
  const bool no_room = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED && !*must;
  if (refused || no_room) return std::nullopt;
  return status;
}

std::optional<int64_t> ScratchBytes(ConvolutionCall call) {
  int64_t bytes = 0;
  call.workspace_limit = ShareOf(call);
  if (PlanInCore(call, BudgetBytes(), &bytes) == CUDNN_STATUS_SUCCESS) return bytes;
  Log(LogLevel::kDebug, "passed: %s", LastText());
  return std::nullopt;
}

}  // namespace oocdnn::shim
