// Share: the part of a problem that one of several devices computes.
//
// A problem is cut along one axis into shares that follow each other. Each share is a problem by
// itself, on parts of the caller's tensors: its views begin elsewhere and have the same strides.
#pragma once

#include <vector>

#include "geom/placement.hpp"
#include "geom/program.hpp"
#include "geom/tiling.hpp"

namespace oocdnn {

struct Share {
  Axis axis = Axis::kN;
  int64_t begin = 0, end = 0;  // of the axis, see ExtentsOf

  [[nodiscard]] int64_t length() const { return end - begin; }
};

// A share as a problem, and for each operand the elements by which its view moves.
struct SharedProblem {
  Problem problem;
  std::array<int64_t, kOperands> offset{};
};

// True if shares along the axis are problems: each of them writes a part of the output, or, along a
// reduction, parts of sums (see AddsUp), which are neither rounded nor followed by an epilogue.
// Joint gradients have no shares; with a pool, tables or saved bits only samples are cut.
bool CanShare(const Problem& problem, Axis axis);
// True if the outputs of shares are added.
inline bool AddsUp(const Problem& problem, Axis axis) { return IsReduction(problem, axis); }
// The axis must be one that CanShare, and the share not empty. A share of sums has no `beta` unless
// it is the first one.
SharedProblem ProblemOf(const Problem& problem, const Share& share);
// A range of the samples of all nodes.
Program ProgramOf(const Program& program, int64_t begin, int64_t end);

// Shares along an axis in proportion to `rates`, one for each, in order; some of a short axis are
// empty. Rates are positive. No shares if one of them is no valid problem.
std::vector<Share> CutInShares(const Problem& problem, Axis axis, const std::vector<double>& rates);
// The same along the axis on which the longest of the shares takes the least time, by the bytes of
// its operands; none if there is no such axis. `adds`: shares may be sums that are to be added.
std::vector<Share> CutInShares(const Problem& problem, const std::vector<double>& rates, bool adds);

}  // namespace oocdnn
