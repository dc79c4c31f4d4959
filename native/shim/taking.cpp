#include "shim/taking.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "shim/gpu_facts.hpp"

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

int64_t Elements(int rank, const Axes& dims) {
  int64_t elements = 1;
  for (int i = 0; i < rank; ++i) elements = Mul(elements, dims[i]);
  return elements;
}

}  // namespace

int64_t BudgetBytes() { return GivenBudget().value_or(kOwnBudget); }

const char* WhyTaken(const ConvolutionCall& call, int64_t workspace) {
  int64_t most = kMostWorkspace;
  if (const auto given = GivenBudget()) {
    most = *given;
  } else if (const int64_t free = FreeBytes(); free > 0) {
    most = std::min(most, free / 5 * 4);
  }
  if (workspace > most) return "workspace";
  const int64_t largest = std::max({Elements(call.x.value.rank, call.x.value.dims),
                                    Elements(call.y.value.rank, call.y.value.dims),
                                    Elements(call.w.rank, call.w.dims)});
  return largest > INT32_MAX ? "2^31" : nullptr;
}

const char* WhyTakenHere(const ConvolutionCall& call) {
  for (const void* pointer :
       {static_cast<const void*>(call.x.data), static_cast<const void*>(call.y.data),
        static_cast<const void*>(call.w_data), static_cast<const void*>(call.bias.data),
        static_cast<const void*>(call.scale.data), static_cast<const void*>(call.residual.data)}) {
    if (pointer == nullptr) continue;
    const Place place = PlaceOf(pointer);
    if (place == Place::kPageable || place == Place::kPinned) return "host-operand";
  }
  return nullptr;
}

std::optional<int64_t> ScratchBytes(const ConvolutionCall& call) {
  int64_t bytes = 0;
  if (PlanInCore(call, BudgetBytes(), &bytes) == CUDNN_STATUS_SUCCESS) return bytes;
  Log(LogLevel::kDebug, "passed: %s", LastText());
  return std::nullopt;
}

}  // namespace oocdnn::shim
