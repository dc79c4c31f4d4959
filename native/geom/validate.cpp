// What can be wrong with the numbers of a problem. Each message names the tensor, the axis and the
// numbers, and says what would be right.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/checked.hpp"
#include "geom/problem.hpp"

namespace oocdnn {
namespace {

constexpr const char* kSpatialNames[3] = {"D", "H", "W"};

// Sizes stay far enough below the int64 limit that sums of a few of them cannot overflow.
constexpr int64_t kLargest = int64_t{1} << 60;

Status CheckCounts(const ConvShape& shape) {
  struct Count {
    const char* name;
    int64_t value, least;
  };
  for (const Count& count : {Count{"the batch size N", shape.n, 0}, Count{"groups", shape.g, 1},
                             Count{"K per group", shape.k, 1}, Count{"C per group", shape.c, 1}}) {
    if (count.value < count.least || count.value > kLargest) {
      return Error(Code::kInvalidProblem, "%s is %lld; it must be at least %lld and at most 2^60",
                   count.name, static_cast<long long>(count.value),
                   static_cast<long long>(count.least));
    }
  }
  return {};
}

Status CheckAxis(const ConvShape& shape, int s) {
  const char* name = kSpatialNames[s];
  struct Part {
    const char* what;
    int64_t value, least;
  };
  for (const Part& part :
       {Part{"stride", shape.stride[s], 1}, Part{"dilation", shape.dilation[s], 1},
        Part{"filter extent", shape.filter[s], 1}, Part{"input extent", shape.in[s], 1},
        Part{"padding before", shape.pad_before[s], 0},
        Part{"padding after", shape.pad_after[s], 0}}) {
    if (part.value < part.least || part.value > kLargest) {
      return Error(Code::kInvalidProblem,
                   "%s on axis %s is %lld; it must be at least %lld and at "
                   "most 2^60",
                   part.what, name, static_cast<long long>(part.value),
                   static_cast<long long>(part.least));
    }
  }
  const int64_t expected = OutputExtent(shape.in[s], shape.pad_before[s], shape.pad_after[s],
                                        shape.filter[s], shape.stride[s], shape.dilation[s]);
  if (expected < 1) {
    return Error(Code::kInvalidProblem,
                 "the output would be empty on axis %s: input %lld + padding %lld + %lld is less "
                 "than the filter's reach %lld; use more padding or a smaller filter",
                 name, static_cast<long long>(shape.in[s]),
                 static_cast<long long>(shape.pad_before[s]),
                 static_cast<long long>(shape.pad_after[s]),
                 static_cast<long long>(Add(Mul(shape.filter[s] - 1, shape.dilation[s]), 1)));
  }
  if (expected != shape.out[s]) {
    return Error(Code::kInvalidProblem,
                 "y has %lld on axis %s; input %lld, padding %lld:%lld, filter %lld, stride %lld, "
                 "dilation %lld make it %lld",
                 static_cast<long long>(shape.out[s]), name, static_cast<long long>(shape.in[s]),
                 static_cast<long long>(shape.pad_before[s]),
                 static_cast<long long>(shape.pad_after[s]),
                 static_cast<long long>(shape.filter[s]), static_cast<long long>(shape.stride[s]),
                 static_cast<long long>(shape.dilation[s]), static_cast<long long>(expected));
  }
  return {};
}

// Axes that the user does not see (D of a 2-D problem) do nothing.
Status CheckUnseen(const ConvShape& shape, int s) {
  if (shape.in[s] == 1 && shape.filter[s] == 1 && shape.out[s] == 1 && shape.pad_before[s] == 0 &&
      shape.pad_after[s] == 0) {
    return {};
  }
  return Error(Code::kInvalidProblem,
               "axis %s is in use (input %lld, filter %lld, output %lld), but the problem has only "
               "%d spatial axes; give it more",
               kSpatialNames[s], static_cast<long long>(shape.in[s]),
               static_cast<long long>(shape.filter[s]), static_cast<long long>(shape.out[s]),
               2 - s);
}

Status CheckNames(const Problem& problem) {
  struct Name {
    const char* what;
    int value, count;
  };
  const Epilogue& epilogue = problem.epilogue;
  for (const Name& name : {Name{"direction", static_cast<int>(problem.direction), kDirections},
                           Name{"math", static_cast<int>(problem.math), kMaths},
                           Name{"activation", static_cast<int>(epilogue.activation), kActivations},
                           Name{"activation of the prologue",
                                static_cast<int>(problem.prologue.activation), kActivations},
                           Name{"pool", static_cast<int>(problem.pool.mode), kPoolModes}}) {
    if (name.value >= 0 && name.value < name.count) continue;
    return Error(Code::kInvalidProblem, "%s is %d; it must be between 0 and %d", name.what,
                 name.value, name.count - 1);
  }
  return {};
}

Status CheckFinish(const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  if (!std::isfinite(problem.alpha) || !std::isfinite(problem.beta)) {
    return Error(Code::kInvalidProblem, "alpha %g and beta %g must be finite", problem.alpha,
                 problem.beta);
  }
  if (!std::isfinite(epilogue.parameter) || !std::isfinite(epilogue.residual_alpha)) {
    return Error(Code::kInvalidProblem,
                 "the activation's parameter %g and the residual's alpha %g must be finite",
                 epilogue.parameter, epilogue.residual_alpha);
  }
  const bool per_channel =
      problem.direction == Direction::kForward || problem.direction == Direction::kBackwardData;
  if (!per_channel && (epilogue.bias || epilogue.scale)) {
    return Error(Code::kInvalidProblem,
                 "bias and scale go with fwd and bwd_data only, not with %s; leave them out",
                 Name(problem.direction));
  }
  return {};
}

// An axis of the windows, and the extents that follow from it.
Status CheckPooledAxis(const Problem& problem, int s) {
  const Pool& pool = problem.pool;
  const int64_t extent = problem.shape.out[s], window = pool.window[s];
  const char* name = kSpatialNames[s];
  for (const auto& [what, value] : {std::pair{"window", window}, {"stride", pool.stride[s]}}) {
    if (value >= 1 && value <= kLargest) continue;
    return Error(Code::kInvalidProblem,
                 "the pool's %s on axis %s is %lld; it must be at least 1 and at most 2^60", what,
                 name, static_cast<long long>(value));
  }
  for (const int64_t pad : {pool.pad_before[s], pool.pad_after[s]}) {
    if (pad >= 0 && pad < window) continue;
    return Error(Code::kInvalidProblem,
                 "the pool's padding on axis %s is %lld; it must be at least 0 and less than the "
                 "window, %lld",
                 name, static_cast<long long>(pad), static_cast<long long>(window));
  }
  const int64_t expected = pool.OutExtent(s, extent);
  if (expected < 1) {
    return Error(Code::kInvalidProblem,
                 "z would be empty on axis %s: %lld of y + padding %lld + %lld is less than the "
                 "pool's window %lld; use a smaller window",
                 name, static_cast<long long>(extent), static_cast<long long>(pool.pad_before[s]),
                 static_cast<long long>(pool.pad_after[s]), static_cast<long long>(window));
  }
  if (expected == problem.shape.pooled[s]) return {};
  return Error(Code::kInvalidProblem,
               "z has %lld on axis %s; %lld of y, the pool's padding %lld:%lld, window %lld and "
               "stride %lld make it %lld",
               static_cast<long long>(problem.shape.pooled[s]), name,
               static_cast<long long>(extent), static_cast<long long>(pool.pad_before[s]),
               static_cast<long long>(pool.pad_after[s]), static_cast<long long>(window),
               static_cast<long long>(pool.stride[s]), static_cast<long long>(expected));
}

// Without windows dz has the extents of y.
Status CheckAxisLikeY(const Problem& problem, int s) {
  const int64_t extent = problem.shape.out[s];
  if (problem.shape.pooled[s] == extent) return {};
  return Error(Code::kInvalidProblem, "%s has %lld on axis %s; the convolution makes it %lld",
               Name(Operand::kZ, problem.direction),
               static_cast<long long>(problem.shape.pooled[s]), kSpatialNames[s],
               static_cast<long long>(extent));
}

Status CheckPool(const Problem& problem) {
  const bool pools = problem.pool.pools();
  const bool forward = problem.direction == Direction::kForward;
  if (forward ? problem.clips || problem.slopes : problem.saves) {
    const char* word = problem.saves ? "+saved" : problem.clips ? "+clipped" : "+sloped";
    return Error(Code::kInvalidProblem, "%s with %s: bits are saved by fwd, and read backward",
                 word, Name(problem.direction));
  }
  if (problem.clips && problem.slopes) {
    return Error(Code::kInvalidProblem, "+clipped and +sloped: one activation is not both");
  }
  if (pools && forward && problem.beta != 0.0) {
    return Error(
        Code::kInvalidProblem,
        "beta is %g: old values of z cannot be added before the pool; pass beta 0, and what "
        "is to be added to y as the residual",
        problem.beta);
  }
  for (int s = 0; s < 3 && pools; ++s) OOC_TRY(CheckPooledAxis(problem, s));
  for (int s = 0; s < 3 && !pools && problem.passes_y(); ++s) OOC_TRY(CheckAxisLikeY(problem, s));
  if (problem.saving().code_bits() > kMostSavedBits) {
    return Error(
        Code::kUnsupported,
        "windows of %lld elements take %d bits for a winner; save at most %d, from smaller "
        "windows, or run forward without saving",
        static_cast<long long>(problem.pool.Elements()), problem.saving().code_bits(),
        kMostSavedBits);
  }
  return {};
}

// Rows of dy in the padding alone would be in no tile, since they reach no dx.
Status CheckPadsOfDb(const ConvShape& shape) {
  for (int s = 0; s < 3; ++s) {
    const int64_t most = std::max(shape.pad_before[s], shape.pad_after[s]);
    if (most < shape.Reach(s)) continue;
    return Error(Code::kUnsupported,
                 "+db on axis %s: padding %lld is not below the filter's reach %lld; compute db "
                 "apart",
                 kSpatialNames[s], static_cast<long long>(most),
                 static_cast<long long>(shape.Reach(s)));
  }
  return {};
}

Status CheckAlso(const Problem& problem) {
  if (!problem.also.any()) return {};
  const bool data = problem.direction == Direction::kBackwardData;
  const bool filter = problem.direction == Direction::kBackwardFilter && !problem.also.dw;
  if (!data && !filter) {
    return Error(Code::kInvalidProblem,
                 "+dw goes with bwd_data only, and +db with that or bwd_filter, not with %s",
                 Name(problem.direction));
  }
  if (problem.alpha != 1.0 || problem.beta != 0.0 || !problem.epilogue.empty()) {
    return Error(Code::kUnsupported,
                 "+dw and +db with alpha %g, beta %g or an epilogue: compute the gradients apart",
                 problem.alpha, problem.beta);
  }
  return data && problem.also.db ? CheckPadsOfDb(problem.shape) : Status();
}

// What is read and what is written have channels each in a convolution, either way round; sums are
// of a tensor that leaves the device.
Status CheckTables(const Problem& problem) {
  if (!problem.prologue.any() && !problem.sums) return {};
  if (!std::isfinite(problem.prologue.parameter)) {
    return Error(Code::kInvalidProblem, "the parameter %g of the prologue must be finite",
                 problem.prologue.parameter);
  }
  const bool convolves =
      problem.direction == Direction::kForward || problem.direction == Direction::kBackwardData;
  if (!convolves || problem.restores()) {
    return Error(Code::kInvalidProblem,
                 "a prologue and sums go with fwd, and with bwd_data that reads dy as it is, not "
                 "with this %s",
                 Name(problem.direction));
  }
  if (!problem.sums || (!problem.pool.pools() && !problem.saves)) return {};
  return Error(Code::kUnsupported,
               "sums are of y, and with a pool or bits to save y is not what is written; pool y by "
               "a call of its own");
}

// Whether two indices of a tensor may share an address, decided the safe way: sorted by stride,
// each dimension must step over the span of all faster ones.
bool MayOverlap(const Dims& dims, const Dims& stride) {
  std::array<std::pair<int64_t, int64_t>, 6> axes;
  for (size_t d = 0; d < axes.size(); ++d) axes[d] = {stride[d], dims[d]};
  std::sort(axes.begin(), axes.end());
  int64_t span = 0;
  for (const auto& [step, extent] : axes) {
    if (extent <= 1) continue;
    if (step <= span) return true;
    span = Add(span, Mul(step, extent - 1));
  }
  return false;
}

Status CheckStrides(const Problem& problem, Operand operand) {
  const Dims dims = problem.DimsOf(operand);
  const Dims& stride = problem.stride[Index(operand)];
  const char* name = Name(operand, problem.direction);
  if (std::count(dims.begin(), dims.end(), 0) > 0) return {};
  int64_t span = 1;
  for (int d = 0; d < 6; ++d) {
    if (dims[d] > 1 && stride[d] <= 0) {
      return Error(Code::kInvalidProblem,
                   "%s has stride %lld in dimension %d; strides must be positive (copy the array, "
                   "for example with numpy.ascontiguousarray)",
                   name, static_cast<long long>(stride[d]), d);
    }
    span = Add(span, Mul(dims[d] - 1, stride[d]));
  }
  if (Mul(span, SizeOf(problem.DTypeOf(operand))) > kLargest) {
    return Error(Code::kInvalidProblem,
                 "%s spans more than 2^60 bytes; check its shape and strides", name);
  }
  if (problem.Writes(operand) && MayOverlap(dims, stride)) {
    return Error(Code::kInvalidProblem,
                 "%s is written, but its strides let two elements share an address; pass a "
                 "contiguous output",
                 name);
  }
  return {};
}

}  // namespace

Status Validate(const Problem& problem) {
  if (!IsValid(problem.dtype)) {
    return Error(Code::kInvalidDtype, "element type %d is not one of f32, f64, f16, bf16",
                 static_cast<int>(problem.dtype));
  }
  if (problem.rank < 1 || problem.rank > 3) {
    return Error(Code::kInvalidProblem, "%d spatial axes; 1, 2 or 3 are possible", problem.rank);
  }
  OOC_TRY(CheckNames(problem));
  OOC_TRY(CheckFinish(problem));
  OOC_TRY(CheckCounts(problem.shape));
  for (int s = 0; s < 3; ++s) OOC_TRY(CheckAxis(problem.shape, s));
  for (int s = 0; s < 3 - problem.rank; ++s) OOC_TRY(CheckUnseen(problem.shape, s));
  OOC_TRY(CheckPool(problem));
  OOC_TRY(CheckAlso(problem));
  OOC_TRY(CheckTables(problem));
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (operand == Operand::kOld || !problem.Has(operand)) continue;
    if (problem.BytesOf(operand) > kLargest) {
      return Error(Code::kInvalidProblem, "%s would have more than 2^60 bytes; check its shape",
                   Name(operand, problem.direction));
    }
    OOC_TRY(CheckStrides(problem, operand));
  }
  return {};
}

}  // namespace oocdnn
