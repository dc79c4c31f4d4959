// Division of one workspace among many kernels that all hold their share at once (µ-cuDNN's
// workspace division); a kernel is a layer in one direction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace oocdnn {

// One way to run a kernel.
struct WorkspaceOption {
  double seconds = 0.0;         // finite
  int64_t workspace_bytes = 0;  // not negative
};

// The ways to run one kernel, in any order; dominated ones do no harm.
using WorkspaceOptions = std::vector<WorkspaceOption>;

struct WorkspaceDivision {
  std::vector<int64_t> chosen;  // the option of each kernel
  double seconds = 0.0;         // the sums over the kernels
  int64_t workspace_bytes = 0;
  // No division takes less; equal to `seconds` where this one is proven to be the fastest.
  double least_seconds = 0.0;
};

// Partial divisions that are kept from one kernel to the next. Those that cannot beat the best
// division known, by the linear relaxation of the kernels left, are dropped first, so that this
// many are seldom needed. Beyond it the most promising half goes on: the division found fits all
// the same, may not be the fastest, and `least_seconds` bounds what is lost. Time and memory are in
// proportion to kMostStates * options and kMostStates * kernels.
constexpr int64_t kMostStates = int64_t{1} << 16;

// The division with the least seconds in all whose workspaces are at most `total` bytes in all.
// Bytes count exactly; seconds that differ by less than 1e-12 of their sum count as equal. No
// kernels have an empty division. kOutOfMemory where even the least workspaces are more than
// `total`, with their sum as its detail(); kInvalidProblem where a kernel has no option, or one is
// not as above.
Result<WorkspaceDivision> DivideWorkspace(const std::vector<WorkspaceOptions>& kernels,
                                          int64_t total);

}  // namespace oocdnn
