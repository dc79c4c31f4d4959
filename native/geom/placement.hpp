// Placement: where the operands of a problem are, as a problem string says it: "x@pin w@dev".
//
// It is kept apart from Problem because it does not change what is computed: plans, logs and
// benchmarks write it behind the problem, and ParseProblem passes over it.
#pragma once

#include <array>
#include <string>

#include "base/location.hpp"
#include "base/status.hpp"
#include "geom/problem.hpp"

namespace oocdnn {

using Tiers = std::array<Tier, kOperands>;

// All operands in one tier.
constexpr Tiers AllOf(Tier tier) {
  Tiers tiers{};
  tiers.fill(tier);
  return tiers;
}

// The word for a tier: "page", "pin", "dev", "file"; "" for those that no string says.
const char* Name(Tier tier);

struct Placement {
  Tiers tiers{};  // kUnknown: the string does not say

  bool operator==(const Placement&) const = default;
};

// The placement words of a problem string; words without "@" are not looked at. An operand is named
// by its place (x, w, y, b, scale, residual, old, z, saved) or as its direction calls it (dx, dw,
// dy, db); those of Also are input, also_dw and also_db.
Result<Placement> ParsePlacement(const std::string& text);

// "x@pin w@dev": the operands that are said, by place; empty where none is.
std::string ToString(const Placement& placement);

}  // namespace oocdnn
