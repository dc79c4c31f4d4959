// Plans that only we have made, as text: what CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION holds
// of them. The real library cannot read it, and we read no text of its.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shim/graph_node.hpp"

namespace oocdnn::shim {

struct PlanText {
  NodePointer graph;
  bool tensor_cores = false;
};

std::string TextOf(const PlanText& plan);
// Whether the text is one of ours.
bool IsPlanText(std::string_view text);
// Nothing where it is damaged.
std::optional<PlanText> PlanOf(std::string_view text);

}  // namespace oocdnn::shim
