// Terms: the parameters of a plan besides its problem.
#pragma once

#include <vector>

#include "geom/placement.hpp"
#include "library/session.hpp"

namespace oocdnn {

struct Terms {
  Tiers tiers = AllOf(Tier::kPinned);
  InPlace in_place{};  // all operands that may be used in place, or none
  int64_t budget = 0, workspace = kNoLimit;
};

// Stands for the context's limit of workspace.
constexpr int64_t kLimitOfContext = -1;

// The terms of a call with these operands, whose tiers are known.
Terms TermsOf(const Session& session, const Problem& problem, const OperandViews& tensors,
              int64_t workspace);
// Of each node of a program, as a call within the budget. Operands that nodes pass to each other
// are on the device.
std::vector<Terms> TermsOf(const Session& session, const Program& program,
                           const std::vector<OperandViews>& tensors, int64_t budget,
                           int64_t workspace);
// The terms for operands at the given placement; then for all of them on the device.
Terms TermsOf(const Session& session, const Problem& problem, const Placement& placement);
Terms TermsInCore(const Session& session, const Problem& problem);

// Whether all operands of all nodes are on the device.
bool OnDevice(const Program& program, const std::vector<Terms>& terms);

}  // namespace oocdnn
