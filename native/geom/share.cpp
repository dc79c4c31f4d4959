// Cutting a problem into shares, one for each device.
#include "geom/share.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.hpp"
#include "geom/axes.hpp"
#include "geom/spatial_rows.hpp"

namespace oocdnn {
namespace {

// An axis is preferred to those before it if its shares take this part of their time: shares along
// the first axes are contiguous in memory.
constexpr double kGain = 0.9;

// Rows of a tensor on one spatial axis.
struct Rows {
  int64_t begin = 0, end = 0;
};

// Tables and saved bits lie densely, so that a range of their channels or rows is no tensor.
bool IsDense(const Problem& problem) {
  return problem.sums || problem.prologue.affine || problem.Uses(Operand::kSaved);
}

// The rows of x that rows of y read; what they read beyond the tensor becomes padding.
Rows CutForward(ConvShape* shape, int s, const Rows& y) {
  const int64_t rows = y.end - y.begin;
  const SpatialRows x = RowsRead(*shape, s, y.begin, rows);
  const int64_t end = x.begin + (rows - 1) * shape->stride[s] + shape->Reach(s);
  shape->pad_before[s] = x.valid_begin - x.begin;
  shape->pad_after[s] = end - x.valid_end;
  shape->in[s] = x.valid_end - x.valid_begin;
  shape->out[s] = rows;
  return {x.valid_begin, x.valid_end};
}

// The rows of dy that reach rows of dx. A row too many reaches nothing but padding.
Rows CutBackward(ConvShape* shape, int s, const Rows& x) {
  const int64_t pad = shape->pad_before[s], stride = shape->stride[s], reach = shape->Reach(s);
  Rows y;
  y.end = std::min(FloorDiv(x.end - 1 + pad, stride) + 1, shape->out[s]);
  y.begin = std::clamp<int64_t>(FirstRow(*shape, s, x.begin), 0, y.end);
  shape->in[s] = x.end - x.begin;
  shape->out[s] = y.end - y.begin;
  shape->pad_before[s] = x.begin + pad - y.begin * stride;
  const int64_t covered = (shape->out[s] - 1) * stride + reach - shape->pad_before[s];
  shape->pad_after[s] = std::max<int64_t>(covered - shape->in[s], 0);
  return y;
}

int64_t& ExtentOf(ConvShape* shape, Axis axis) {
  switch (axis) {
    case Axis::kG: return shape->g;
    case Axis::kK: return shape->k;
    case Axis::kC: return shape->c;
    default: return shape->n;
  }
}

// The dimension of the operand that the axis moves; -1 if it moves none.
int DimensionOf(const Problem& problem, Operand operand, Axis axis) {
  if (IsTable(operand)) return axis == Axis::kN ? 0 : -1;
  const std::array<int, 6>& axes = AxesOf(problem.direction, operand);
  for (int d = 0; d < 6; ++d) {
    if (axes[static_cast<size_t>(d)] == Index(axis)) return d;
  }
  return -1;
}

double BytesOf(const Problem& problem) { return static_cast<double>(problem.Bytes()); }

constexpr double kNotValid = std::numeric_limits<double>::infinity();

// The longest of the shares, whose bytes cross at the rates; kNotValid if one is no valid problem.
// Sums of a share are written, read and added once more than results.
double SecondsOf(const Problem& problem, const std::vector<Share>& shares,
                 const std::vector<double>& rates) {
  double longest = 0.0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].length() == 0) continue;
    const Problem part = ProblemOf(problem, shares[i]).problem;
    if (!Validate(part).ok()) return kNotValid;
    double bytes = BytesOf(part);
    if (AddsUp(problem, shares[i].axis)) {
      bytes += 2.0 * static_cast<double>(part.BytesOf(part.output()));
    }
    longest = std::max(longest, bytes / rates[i]);
  }
  return longest;
}

// True if a spatial axis moves the operand as it moves x; false if as it moves y.
bool IsLikeX(const Problem& problem, Operand operand) {
  if (operand == Operand::kResidual || operand == Operand::kOld) {
    return IsLikeX(problem, problem.sum());
  }
  return operand == Operand::kX || operand == Operand::kInput;
}

}  // namespace

bool CanShare(const Problem& problem, Axis axis) {
  if (problem.also.any()) return false;
  if (IsReduction(problem, axis)) {
    const bool rounds_once = AccumulatorOf(problem.dtype) == problem.dtype;
    const bool plain = problem.epilogue.empty() && problem.direction == Direction::kBackwardFilter;
    if (!plain || !rounds_once) return false;
  }
  if (axis == Axis::kN) return true;
  return !IsDense(problem) && !(IsSpatial(axis) && problem.passes_y());
}

SharedProblem ProblemOf(const Problem& problem, const Share& share) {
  SharedProblem made{problem, {}};
  ConvShape& shape = made.problem.shape;
  Rows x{share.begin, share.end}, y = x;
  if (!IsSpatial(share.axis)) {
    ExtentOf(&shape, share.axis) = share.length();
  } else if (problem.direction == Direction::kBackwardData) {
    y = CutBackward(&shape, SpatialIndex(share.axis), x);
  } else {
    x = CutForward(&shape, SpatialIndex(share.axis), y);
  }
  if (AddsUp(problem, share.axis) && share.begin > 0) made.problem.beta = 0.0;
  for (int o = 0; o < kOperands; ++o) {
    const auto operand = static_cast<Operand>(o);
    const int dimension = DimensionOf(problem, operand, share.axis);
    if (dimension < 0 || !problem.Has(operand)) continue;
    const int64_t begin = IsLikeX(problem, operand) ? x.begin : y.begin;
    made.offset[static_cast<size_t>(o)] =
        Mul(begin, problem.stride[static_cast<size_t>(o)][static_cast<size_t>(dimension)]);
  }
  SetPooled(&made.problem);
  return made;
}

Program ProgramOf(const Program& program, int64_t begin, int64_t end) {
  Program made(program.traversal());
  for (size_t i = 0; i < program.size(); ++i) {
    made.Append(ProblemOf(program[i], {Axis::kN, begin, end}).problem, program.LinkOf(i));
  }
  for (const ProgramTensor& tensor : program.tensors()) made.Share(tensor.uses, tensor.outer);
  return made;
}

namespace {

// The shares, valid problems or not.
std::vector<Share> CutAt(const Problem& problem, Axis axis, const std::vector<double>& rates) {
  const int64_t extent = ExtentsOf(problem)[Index(axis)];
  const double all = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<Share> shares;
  double before = 0.0;
  int64_t begin = 0;
  for (const double rate : rates) {
    before += rate;
    const auto end = static_cast<int64_t>(std::llround(static_cast<double>(extent) * before / all));
    shares.push_back({axis, begin, std::clamp(end, begin, extent)});
    begin = shares.back().end;
  }
  shares.back().end = extent;
  return shares;
}

}  // namespace

std::vector<Share> CutInShares(const Problem& problem, Axis axis,
                               const std::vector<double>& rates) {
  std::vector<Share> shares = CutAt(problem, axis, rates);
  if (SecondsOf(problem, shares, rates) == kNotValid) shares.clear();
  return shares;
}

std::vector<Share> CutInShares(const Problem& problem, const std::vector<double>& rates,
                               bool adds) {
  std::vector<Share> best;
  double least = kNotValid;
  for (const Axis axis : {Axis::kN, Axis::kG, Axis::kD, Axis::kH, Axis::kK, Axis::kC, Axis::kW}) {
    if (!CanShare(problem, axis) || (AddsUp(problem, axis) && !adds)) continue;
    std::vector<Share> shares = CutAt(problem, axis, rates);
    const double seconds = SecondsOf(problem, shares, rates);
    if (seconds < kGain * least) {
      least = seconds;
      best = std::move(shares);
    }
  }
  return best;
}

}  // namespace oocdnn
