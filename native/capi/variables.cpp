#include "capi/variables.hpp"

#include <optional>

#include "base/config.hpp"

namespace oocdnn {

std::string VariablesOf(const oocdnn_options& given) {
  const struct {
    bool given;
    Var var;
  } all[] = {{given.device != nullptr, Var::kDevice},
             {given.engine != nullptr, Var::kEngine},
             {given.math != OOCDNN_MATH_FP32, Var::kMath},
             {given.budget != nullptr, Var::kBudget},
             {given.profile != nullptr, Var::kProfile},
             {given.workspace != nullptr, Var::kWorkspaceLimit},
             {given.busy_gpus != nullptr, Var::kBusyGpus},
             {given.borrow != nullptr, Var::kBorrow},
             {given.planning != nullptr, Var::kPlanning},
             {given.planning_seconds != 0.0, Var::kPlanningSeconds},
             {given.host_cap > 0, Var::kPinnedLimit}};
  std::string text;
  for (const auto& one : all) {
    const std::optional<std::string> value = Get(one.var);
    if (one.given || !value) continue;
    text += Format("%s%s=%s", text.empty() ? "" : " ", InfoOf(one.var).name, value->c_str());
  }
  return text;
}

}  // namespace oocdnn
