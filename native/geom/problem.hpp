// Problem: a convolution as a value. Shapes, strides, padding, element type, direction, scalars.
//
// Every tensor is seen with six dimensions, so that one arithmetic serves 1-D, 2-D, 3-D, grouped
// and depthwise convolution alike:
//
//   x, dx   N G C D H W     (C and K are per group; missing spatial axes have extent 1)
//   w, dw   G K C T R S
//   y, dy   N G K O P Q
//   b, db   1 G K 1 1 1     (K is C where the output is x: a transposed convolution's bias)
//   z, dz   N G K O P Q     (y pooled, with extents of its own)
//   saved   N G K O P Q     (bits of z or y, see Saving; the last extent is in bytes)
//   prologue         N 1 C 1 1 2   (tables: numbers of each sample and channel, never cut)
//   sums             N 1 C 1 1 5   (see SumNumber)
//
// A convolution is y[p] = sum over r of x[p * stride + r * dilation - pad_before] * w[r] on each
// spatial axis. A transposed convolution is backward data with the roles of x and y exchanged.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "geom/activation.h"
#include "geom/pool.hpp"

namespace oocdnn {

using Dims = std::array<int64_t, 6>;
// The number of elements in a box of these extents, saturating as Mul does.
int64_t Product(const Dims& extents);

// The values of these enums are those of the C API.
enum class Direction : int {
  kForward = 0,
  kBackwardData = 1,
  kBackwardFilter = 2,
  kBackwardBias = 3
};
constexpr int kDirections = 4;

// The arithmetic of float32. kFp32: products and sums of float32 alone; kTf32: factors may be
// rounded to TF32; kFp32x3: products of float32 as three of TF32, with about as small an error;
// kFp32Fast: that, and transforms (Winograd's, Fourier's), which round more often.
enum class Math : int { kFp32 = 0, kTf32 = 1, kFp32x3 = 2, kFp32Fast = 3 };
constexpr int kMaths = 4;
const char* Name(Math math);  // "fp32", ...; null for other numbers

// Whether its derivative takes other values than 0 and 1.
constexpr bool IsSmooth(Activation activation) {
#define OOC_ROW(name, number, word, example, parameter, smooth) smooth,
  constexpr bool kSmooth[kActivations] = {OOC_ACTIVATIONS(OOC_ROW)};
#undef OOC_ROW
  const int number = static_cast<int>(activation);
  return number >= 0 && number < kActivations && kSmooth[number];
}

// The tensors of a convolution. kX, kW, kY name a place, whatever the direction: in backward data
// kX is dx and kY is dy. kOld is the output before the call (read where beta is not 0). kInput is x
// itself where kX is dx, for dw's sake; it, kDw and kDb are those of Also. kPrologue is the scale
// and the shift of what is read, see Prologue; kSums the sums of what is written, see
// Problem::sums.
enum class Operand : int {
  kX = 0,
  kW = 1,
  kY = 2,
  kBias = 3,
  kScale = 4,
  kResidual = 5,
  kOld = 6,
  kZ = 7,
  kSaved = 8,
  kInput = 9,
  kDw = 10,
  kDb = 11,
  kPrologue = 12,
  kSums = 13
};
constexpr int kOperands = 14;
constexpr int Index(Operand operand) { return static_cast<int>(operand); }
// The numbers of a sample and channel in the table of sums: the sum of the elements and of their
// squares; then their count, their mean, and the sum of their squared deviations from the mean. A
// variance follows from the last alone: the difference of the first two cancels.
enum SumNumber : int { kSumOf, kSquaresOf, kCountOf, kMeanOf, kDeviationsOf };
constexpr int64_t kSumNumbers = 5;
constexpr int64_t kSumPair = 2;  // of a caller who wants the first two, see Problem::pairs
// True for the prologue and the sums: small tables, all of which the device holds from the first
// tile on.
constexpr bool IsTable(Operand operand) {
  return operand == Operand::kPrologue || operand == Operand::kSums;
}

const char* Name(Direction direction);
// The tensor's name as a user writes it: x or dx, w or dw, y or dy, b or db, ...
const char* Name(Operand operand, Direction direction);

// What a convolution in that direction computes.
constexpr Operand OutputOf(Direction direction) {
  switch (direction) {
    case Direction::kForward: return Operand::kY;
    case Direction::kBackwardData: return Operand::kX;
    case Direction::kBackwardFilter: return Operand::kW;
    case Direction::kBackwardBias: return Operand::kBias;
  }
  return Operand::kY;
}

// Sizes of a convolution or of one tile of it. All counts are >= 0; c and k are per group.
struct ConvShape {
  int64_t n = 1, g = 1, k = 1, c = 1;
  Spatial in{1, 1, 1}, filter{1, 1, 1}, out{1, 1, 1};
  Spatial pad_before{0, 0, 0}, pad_after{0, 0, 0}, stride{1, 1, 1}, dilation{1, 1, 1};
  // Of z where y is pooled, and of what is saved (the last in bytes); 1 elsewhere.
  Spatial pooled{1, 1, 1}, saved{1, 1, 1};
  // Of the whole tensors, whatever the tile: samples, channels that are read, and those that are
  // written. What tables have rows for; 0 where there are none.
  Spatial tables{0, 0, 0};

  bool operator==(const ConvShape&) const = default;

  // The six extents of `operand`. For kBias and kScale the channels are those of the output.
  [[nodiscard]] Dims DimsOf(Operand operand, Direction direction) const;
  // Extent of the filter's reach on spatial axis `axis`: (filter - 1) * dilation + 1.
  [[nodiscard]] int64_t Reach(int axis) const { return (filter[axis] - 1) * dilation[axis] + 1; }
  // Elements of a filter for one input and one output channel.
  [[nodiscard]] int64_t Taps() const { return filter[0] * filter[1] * filter[2]; }
  // Multiply-adds of the convolution: n * g * k * c * out * filter.
  [[nodiscard]] double MultiplyAdds() const;
  // Floating-point operations: two a multiply-add; backward bias adds each element of dy once.
  [[nodiscard]] double Operations(Direction direction) const;
};

// What happens to the finished sum, in this order, in the accumulator's type:
//   v = alpha * sum;  v *= scale[channel];  v += bias[channel];
//   v += residual_alpha * residual;  v += beta * old;  out = activation(v)
struct Epilogue {
  bool scale = false, bias = false, residual = false;
  double residual_alpha = 1.0;
  Activation activation = Activation::kIdentity;
  double parameter = 0.0;

  bool operator==(const Epilogue&) const = default;
  [[nodiscard]] bool empty() const {
    return !scale && !bias && !residual && activation == Activation::kIdentity;
  }
};

// What becomes of x, once it is on the device, before it is convolved: in place, and rounded once,
//   x = activation(x * scale[sample, channel] + shift[sample, channel])
// Padding stays zero. Of a transposed convolution (backward data) it is dy that is read.
struct Prologue {
  bool affine = false;  // there is a scale and a shift
  Activation activation = Activation::kIdentity;
  double parameter = 0.0;

  bool operator==(const Prologue&) const = default;
  [[nodiscard]] bool any() const { return affine || activation != Activation::kIdentity; }
};

// Backward data, and backward filter for db: the other gradients that its tiles yield, from the dy
// that each of them restores anyway. dw and db are summed up on the device from tile to tile, so K
// and C are never cut.
struct Also {
  bool dw = false, db = false;

  bool operator==(const Also&) const = default;
  [[nodiscard]] bool any() const { return dw || db; }
};

struct Problem {
  Direction direction = Direction::kForward;
  int rank = 2;  // spatial axes the user sees: 1 (W), 2 (H, W), 3 (D, H, W)
  ConvShape shape;
  DType dtype = DType::kFloat32;
  Math math = Math::kFp32;
  bool flip = false;  // true: convolution (mirrored filter); false: cross-correlation
  double alpha = 1.0, beta = 0.0;
  Epilogue epilogue;
  Pool pool;           // over the finished values; backward: of the forward pass, see restores()
  bool saves = false;  // forward: what backward needs leaves the device too, see saving()
  bool clips = false;  // backward: bits say where the forward pass's activation was flat
  // Backward: the forward pass's activation was smooth, and its slopes were saved; not with
  // `clips`.
  bool slopes = false;
  Also also;
  Prologue prologue;
  bool sums = false;   // of what is written, rounded as it is, see SumNumber; in float64
  bool pairs = false;  // with `sums`: the caller's table holds kSumPair of the numbers
  // Element strides of each operand in its six dimensions; any positive value (0 where the extent
  // is 1 is fine). Unused operands hold zeros.
  std::array<Dims, kOperands> stride{};

  // The caller's tensor; those of a tile are its shape's.
  [[nodiscard]] Dims DimsOf(Operand operand) const {
    Dims dims = shape.DimsOf(operand, direction);
    if (pairs && operand == Operand::kSums) dims[5] = kSumPair;
    return dims;
  }
  // Whether y is only on the way: forward to z, its pool; backward from dz, see restores(). Where
  // other gradients come along it always is, if only as a copy of dz, since db is summed from what
  // is left of a tile of dy without the rows that others have too.
  [[nodiscard]] bool passes_y() const { return pool.pools() || clips || slopes || also.any(); }
  // Backward: dy is made on the device, from dz and from what the forward pass saved.
  [[nodiscard]] bool restores() const { return direction != Direction::kForward && passes_y(); }
  // What the convolution itself computes, and what becomes of it: z where that is pooled.
  [[nodiscard]] Operand sum() const { return OutputOf(direction); }
  [[nodiscard]] Operand output() const {
    return direction == Direction::kForward && pool.pools() ? Operand::kZ : sum();
  }
  // What the convolution reads beside the filter, where it has one.
  [[nodiscard]] Operand source() const {
    return direction == Direction::kForward ? Operand::kX : Operand::kY;
  }
  // What is saved of the forward pass.
  [[nodiscard]] Saving saving() const;
  // Whether tiles have a part of the operand: it is read, written, or made on the way.
  [[nodiscard]] bool Uses(Operand operand) const;
  // Whether it is made on the device and used up there: y where that is only on the way.
  [[nodiscard]] bool Stays(Operand operand) const { return operand == Operand::kY && passes_y(); }
  // Whether the caller has such a tensor: it is read, or is an output.
  [[nodiscard]] bool Has(Operand operand) const { return Uses(operand) && !Stays(operand); }
  [[nodiscard]] bool Writes(Operand operand) const {
    const bool saved = operand == Operand::kSaved && direction == Direction::kForward;
    const bool other =
        operand == Operand::kDw || operand == Operand::kDb || operand == Operand::kSums;
    return operand == output() || ((saved || other) && Uses(operand));
  }
  [[nodiscard]] bool Reads(Operand operand) const { return Has(operand) && !Writes(operand); }
  // Of the caller's elements (kSaved: bytes).
  [[nodiscard]] DType DTypeOf(Operand operand) const {
    if (operand == Operand::kPrologue) return AccumulatorOf(dtype);
    if (operand == Operand::kSums) return DType::kFloat64;
    return operand == Operand::kSaved ? DType::kByte : dtype;
  }
  // Bytes of the elements of one operand, and of all that the caller has (kOld is the output).
  [[nodiscard]] int64_t BytesOf(Operand operand) const;
  [[nodiscard]] int64_t Bytes() const;
  // True where alpha, beta, the epilogue or a pool ask for a pass over the finished sum.
  [[nodiscard]] bool NeedsFinish() const {
    return alpha != 1.0 || beta != 0.0 || !epilogue.empty() || output() == Operand::kZ ||
           Writes(Operand::kSaved);
  }
};

// Asked in inner loops.
inline Saving Problem::saving() const {
  const bool forward = direction == Direction::kForward;
  if (forward && !saves) return {};
  const bool flat = forward ? epilogue.activation == Activation::kRelu ||
                                  epilogue.activation == Activation::kClippedRelu
                            : clips;
  const bool smooth = forward ? IsSmooth(epilogue.activation) : slopes;
  const bool winners = pool.mode == PoolMode::kMax;
  const int64_t most = winners ? pool.Elements() - (flat ? 0 : 1) : flat ? 1 : 0;  // of the values
  const int bits = std::bit_width(static_cast<uint64_t>(most));
  if (bits == 0 && !smooth) return {};
  const Saved what = winners ? Saved::kWinners : Saved::kAlive;
  if (!smooth) return {what, bits};
  return {what, 8 * static_cast<int>(SizeOf(dtype)) + (bits + 7) / 8 * 8, dtype};
}

inline bool Problem::Uses(Operand operand) const {
  switch (operand) {
    case Operand::kX:
    case Operand::kW: return direction != Direction::kBackwardBias;
    case Operand::kY: return true;
    case Operand::kBias: return direction == Direction::kBackwardBias || epilogue.bias;
    case Operand::kScale: return epilogue.scale;
    case Operand::kResidual: return epilogue.residual;
    case Operand::kOld: return beta != 0.0;
    case Operand::kZ: return passes_y();
    case Operand::kSaved: return saving().what != Saved::kNothing;
    case Operand::kInput:
    case Operand::kDw: return also.dw;
    case Operand::kDb: return also.db;
    case Operand::kPrologue: return prologue.affine;
    case Operand::kSums: return sums;
  }
  return false;
}

// Fills in shape.pooled, shape.saved and shape.tables, which follow from the rest, and the strides
// of what is saved and of tables, which are always dense.
void SetPooled(Problem* problem);

// Dense strides of six dimensions, last one fastest; and with the channel fastest (channels-last).
Dims DenseStrides(const Dims& dims);
Dims ChannelsLastStrides(const Dims& dims);

// Checks everything that can be wrong with the numbers of a problem: extents, out against in,
// groups, zero or negative parameters, sizes and strides that overflow, outputs whose strides
// overlap. `problem.shape.out` must hold the sizes of y.
Status Validate(const Problem& problem);

// floor((in + before + after - reach) / stride) + 1, or 0 where the filter does not fit.
int64_t OutputExtent(int64_t in, int64_t before, int64_t after, int64_t filter, int64_t stride,
                     int64_t dilation);

// Shortens strides beyond 64 that pass the padded input: they take one step all the same, and no
// tile is then much longer than its tensor. Shorter ones stay, since plans are named by them.
void ShortenStrides(ConvShape* shape);

// The type of the elements and what may compute them, as it stands in problem strings: "f32",
// "f32/tf32".
std::string TypeName(DType dtype, Math math);

// The problem string of plans, logs, errors and benchmarks (see problem_text.cpp for the grammar).
// ParseProblem gives dense (or channels-last, by "nhwc") strides; printing and reading agree.
std::string ToString(const Problem& problem);
Result<Problem> ParseProblem(const std::string& text);

}  // namespace oocdnn
