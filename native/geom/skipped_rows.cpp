// An axis with skipped rows becomes one with the stride 1.
#include "geom/skipped_rows.hpp"

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// Bytes from a row to the next one from which on rows that are skipped are not copied: of memory,
// and of files, where each row is a read of its own.
constexpr int64_t kLeastRow = 128, kLeastRowInFile = 4096;

bool ReadsX(const Problem& problem) {
  return problem.direction == Direction::kForward ||
         problem.direction == Direction::kBackwardFilter;
}

bool SkipsRows(const Problem& problem, int axis, int64_t least_bytes) {
  const ConvShape& shape = problem.shape;
  const int64_t step = problem.stride[Index(Operand::kX)][3 + static_cast<size_t>(axis)];
  const bool windows = shape.filter[axis] == 1 && shape.stride[axis] > 1;
  const bool pads = shape.pad_before[axis] != 0 || shape.pad_after[axis] != 0;
  return windows && !pads && shape.out[axis] > 1 && Mul(step, SizeOf(problem.dtype)) >= least_bytes;
}

}  // namespace

Problem WithoutSkippedRows(const Problem& problem, const Tiers& tiers) {
  Problem read = problem;
  const Tier tier = tiers[Index(Operand::kX)];
  if (!ReadsX(problem) || tier == Tier::kDevice) return read;
  const int64_t least_bytes = tier == Tier::kFile ? kLeastRowInFile : kLeastRow;
  for (int axis = 0; axis < 3; ++axis) {
    if (!SkipsRows(problem, axis, least_bytes)) continue;
    int64_t& step = read.stride[Index(Operand::kX)][3 + static_cast<size_t>(axis)];
    step = Mul(step, problem.shape.stride[axis]);
    read.shape.in[axis] = problem.shape.out[axis];
    read.shape.stride[axis] = 1;
  }
  return read;
}

}  // namespace oocdnn
