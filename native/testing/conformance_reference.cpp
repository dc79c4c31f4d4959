// One loop nest visits every pair of an input element and a filter tap; padding is never read.
#include "testing/conformance_reference.hpp"

#include <cmath>

namespace oocdnn::testing {
namespace {

// The row of x under filter tap `tap` of output row `row`, or -1 in the padding.
int64_t RowOfX(const ConvShape& shape, int s, int64_t row, int64_t tap) {
  const int64_t x = row * shape.stride[s] + tap * shape.dilation[s] - shape.pad_before[s];
  return x < shape.in[s] ? x : -1;
}

// Calls visit(x index, w index, y index) for each product, in a fixed order.
template <class Visit>
void ForEachProduct(const ConvShape& shape, Visit&& visit) {
  const Dims taps = shape.DimsOf(Operand::kW, Direction::kForward);
  const Dims rows = shape.DimsOf(Operand::kY, Direction::kForward);
  ForEach({}, taps, [&](const Dims& w) {
    const Dims begin{0, w[0], w[1], 0, 0, 0};
    const Dims end{rows[0], w[0] + 1, w[1] + 1, rows[3], rows[4], rows[5]};
    ForEach(begin, end, [&](const Dims& y) {
      const Dims x{y[0], w[0], w[2], RowOfX(shape, 0, y[3], w[3]), RowOfX(shape, 1, y[4], w[4]),
                   RowOfX(shape, 2, y[5], w[5])};
      if (x[3] >= 0 && x[4] >= 0 && x[5] >= 0) visit(x, w, y);
    });
  });
}

Tensor SumOfRows(const ConvShape& shape, const Tensor& y) {
  Tensor sums(shape.DimsOf(Operand::kBias, Direction::kBackwardBias));
  ForEach({}, y.dims, [&](const Dims& i) { sums.at({0, i[1], i[2], 0, 0, 0}) += y.at(i); });
  return sums;
}

}  // namespace

Operand OutputOf(Direction direction) {
  Problem problem;
  problem.direction = direction;
  return problem.output();
}

std::vector<Operand> InputsOf(Direction direction) {
  switch (direction) {
    case Direction::kForward: return {Operand::kX, Operand::kW};
    case Direction::kBackwardData: return {Operand::kW, Operand::kY};
    case Direction::kBackwardFilter: return {Operand::kX, Operand::kY};
    case Direction::kBackwardBias: return {Operand::kY};
  }
  return {};
}

Tensor Convolve(Direction direction, const ConvShape& shape, const Operands& operands) {
  const Tensor& x = operands[Index(Operand::kX)];
  const Tensor& w = operands[Index(Operand::kW)];
  const Tensor& y = operands[Index(Operand::kY)];
  if (direction == Direction::kBackwardBias) return SumOfRows(shape, y);
  Tensor out(shape.DimsOf(OutputOf(direction), direction));
  ForEachProduct(shape, [&](const Dims& ix, const Dims& iw, const Dims& iy) {
    switch (direction) {
      case Direction::kForward: out.at(iy) += x.at(ix) * w.at(iw); break;
      case Direction::kBackwardData: out.at(ix) += y.at(iy) * w.at(iw); break;
      case Direction::kBackwardFilter: out.at(iw) += x.at(ix) * y.at(iy); break;
      case Direction::kBackwardBias: break;
    }
  });
  return out;
}

Tensor Magnitude(Direction direction, const ConvShape& shape, const Operands& operands) {
  Operands sizes = operands;
  for (Tensor& tensor : sizes) {
    for (double& value : tensor.values) value = std::abs(value);
  }
  return Convolve(direction, shape, sizes);
}

int64_t TermsOf(Direction direction, const ConvShape& shape) {
  const int64_t taps = shape.filter[0] * shape.filter[1] * shape.filter[2];
  const int64_t rows = shape.out[0] * shape.out[1] * shape.out[2];
  switch (direction) {
    case Direction::kForward: return shape.c * taps;
    case Direction::kBackwardData: return shape.k * taps;
    case Direction::kBackwardFilter:
    case Direction::kBackwardBias: return shape.n * rows;
  }
  return 0;
}

ConvShape MakeShape(int64_t n, int64_t g, int64_t k, int64_t c, const Spatial& in,
                    const Spatial& filter, const Spatial& pad, const Spatial& stride,
                    const Spatial& dilation) {
  ConvShape shape;
  shape.n = n;
  shape.g = g;
  shape.k = k;
  shape.c = c;
  shape.in = in;
  shape.filter = filter;
  shape.pad_before = shape.pad_after = pad;
  shape.stride = stride;
  shape.dilation = dilation;
  for (int s = 0; s < 3; ++s) {
    shape.out[s] = OutputExtent(in[s], pad[s], pad[s], filter[s], stride[s], dilation[s]);
  }
  return shape;
}

}  // namespace oocdnn::testing
