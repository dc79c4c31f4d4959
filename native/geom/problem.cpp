#include "geom/problem.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"

namespace oocdnn {

const char* Name(Direction direction) {
  switch (direction) {
    case Direction::kForward: return "fwd";
    case Direction::kBackwardData: return "bwd_data";
    case Direction::kBackwardFilter: return "bwd_filter";
    case Direction::kBackwardBias: return "bwd_bias";
  }
  return "?";
}

const char* Name(Operand operand, Direction direction) {
  switch (operand) {
    case Operand::kX: return direction == Direction::kBackwardData ? "dx" : "x";
    case Operand::kW: return direction == Direction::kBackwardFilter ? "dw" : "w";
    case Operand::kY: return direction == Direction::kForward ? "y" : "dy";
    case Operand::kBias: return direction == Direction::kBackwardBias ? "db" : "b";
    case Operand::kScale: return "scale";
    case Operand::kResidual: return "residual";
    case Operand::kOld: return "old";
    case Operand::kZ: return direction == Direction::kForward ? "z" : "dz";
    case Operand::kSaved: return "saved";
    case Operand::kInput: return "x";
    case Operand::kDw: return "dw";
    case Operand::kDb: return "db";
    case Operand::kPrologue: return "prologue";
    case Operand::kSums: return "sums";
  }
  return "?";
}

Dims ConvShape::DimsOf(Operand operand, Direction direction) const {
  switch (operand) {
    case Operand::kX:
    case Operand::kInput: return {n, g, c, in[0], in[1], in[2]};
    case Operand::kW:
    case Operand::kDw: return {g, k, c, filter[0], filter[1], filter[2]};
    case Operand::kY: return {n, g, k, out[0], out[1], out[2]};
    case Operand::kBias:
    case Operand::kScale: return {1, g, direction == Direction::kBackwardData ? c : k, 1, 1, 1};
    case Operand::kResidual:
    case Operand::kOld: return DimsOf(OutputOf(direction), direction);
    case Operand::kZ: return {n, g, k, pooled[0], pooled[1], pooled[2]};
    case Operand::kSaved: return {n, g, k, saved[0], saved[1], saved[2]};
    case Operand::kDb: return {1, g, k, 1, 1, 1};
    case Operand::kPrologue: return {tables[0], 1, tables[1], 1, 1, 2};
    case Operand::kSums: return {tables[0], 1, tables[2], 1, 1, kSumNumbers};
  }
  return {};
}

double ConvShape::MultiplyAdds() const {
  double product = static_cast<double>(n) * static_cast<double>(g) * static_cast<double>(k) *
                   static_cast<double>(c);
  for (int s = 0; s < 3; ++s) {
    product *= static_cast<double>(out[s]) * static_cast<double>(filter[s]);
  }
  return product;
}

double ConvShape::Operations(Direction direction) const {
  if (direction != Direction::kBackwardBias) return 2.0 * MultiplyAdds();
  double elements = 1.0;
  for (const int64_t extent : DimsOf(Operand::kY, direction)) {
    elements *= static_cast<double>(extent);
  }
  return elements;
}

int64_t Problem::BytesOf(Operand operand) const {
  int64_t bytes = SizeOf(DTypeOf(operand));
  for (const int64_t extent : DimsOf(operand)) bytes = Mul(bytes, extent);
  return bytes;
}

int64_t Problem::Bytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (operand != Operand::kOld && Has(operand)) bytes = Add(bytes, BytesOf(operand));
  }
  return bytes;
}

namespace {

constexpr int64_t kUsualStride = 64;  // a shorter stride is kept as it is

// A step beyond the padded extent is as good as one of that extent. `window`: with ceil an axis
// shorter than the window has one window, if the stride passes the difference (see
// Pool::OutExtent), so a stride is not shortened below the window.
int64_t Shortened(int64_t stride, int64_t extent, int64_t before, int64_t after,
                  int64_t window = 1) {
  return std::min(stride, std::max({Add(Add(extent, before), after), window, kUsualStride}));
}

void SetTables(Problem* problem) {
  ConvShape& shape = problem->shape;
  shape.tables = {0, 0, 0};
  if (!problem->prologue.affine && !problem->sums) return;
  const bool forward = problem->direction == Direction::kForward;
  const int64_t x = Mul(shape.g, shape.c), y = Mul(shape.g, shape.k);
  shape.tables = {shape.n, forward ? x : y, forward ? y : x};
  for (const Operand table : {Operand::kPrologue, Operand::kSums}) {
    problem->stride[Index(table)] = DenseStrides(problem->DimsOf(table));
  }
}

}  // namespace

void SetPooled(Problem* problem) {
  SetTables(problem);
  ConvShape& shape = problem->shape;
  shape.pooled = shape.saved = {1, 1, 1};
  for (int s = 0; s < 3 && problem->passes_y(); ++s) {
    Pool& pool = problem->pool;
    pool.stride[s] = Shortened(pool.stride[s], shape.out[s], pool.pad_before[s], pool.pad_after[s],
                               std::max<int64_t>(pool.window[s], 1));
    shape.pooled[s] = problem->pool.OutExtent(s, shape.out[s]);
  }
  const Saving saving = problem->saving();
  if (saving.what == Saved::kNothing) return;
  for (int s = 0; s < 3; ++s) {
    shape.saved[s] = saving.what == Saved::kWinners ? shape.pooled[s]
                                                    : problem->pool.RowsReached(s, shape.out[s]);
  }
  shape.saved[2] = saving.RowBytes(shape.saved[2]);
  problem->stride[Index(Operand::kSaved)] = DenseStrides(problem->DimsOf(Operand::kSaved));
}

void ShortenStrides(ConvShape* shape) {
  for (int s = 0; s < 3; ++s) {
    shape->stride[s] =
        Shortened(shape->stride[s], shape->in[s], shape->pad_before[s], shape->pad_after[s]);
  }
}

int64_t Product(const Dims& extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) product = Mul(product, extent);
  return product;
}

Dims DenseStrides(const Dims& dims) {
  Dims stride{};
  int64_t next = 1;
  for (int d = 5; d >= 0; --d) {
    stride[d] = next;
    next = Mul(next, std::max<int64_t>(dims[d], 1));
  }
  return stride;
}

Dims ChannelsLastStrides(const Dims& dims) {
  Dims stride{};
  int64_t next = 1;
  for (const int d : {2, 1, 5, 4, 3, 0}) {
    stride[d] = next;
    next = Mul(next, std::max<int64_t>(dims[d], 1));
  }
  return stride;
}

int64_t OutputExtent(int64_t in, int64_t before, int64_t after, int64_t filter, int64_t stride,
                     int64_t dilation) {
  const int64_t reach = Add(Mul(Add(filter, -1), dilation), 1);
  const int64_t room = Add(Add(Add(in, before), after), -reach);
  return room < 0 ? 0 : Add(room / stride, 1);
}

}  // namespace oocdnn
