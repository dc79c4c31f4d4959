// Padding is zero data that takes part, as it does where a tile's slot holds it: a NaN that meets
// padding gives NaN, whole or cut.
#include "testing/conformance_reference.hpp"

#include <cmath>

namespace oocdnn::testing {
namespace {

// The element of `tensor`, or zero where a spatial index is outside.
double Padded(const Tensor& tensor, const Dims& index) {
  for (const size_t d : {3, 4, 5}) {
    if (index[d] < 0 || index[d] >= tensor.dims[d]) return 0.0;
  }
  return tensor.at(index);
}

// The place of x under filter tap `w` of output place `y`. It may lie in the padding.
Dims PlaceOfX(const ConvShape& shape, const Dims& w, const Dims& y) {
  Dims x{y[0], w[0], w[2], 0, 0, 0};
  for (size_t s = 0; s < 3; ++s) {
    x[3 + s] = y[3 + s] * shape.stride[s] + w[3 + s] * shape.dilation[s] - shape.pad_before[s];
  }
  return x;
}

// The place of y that reads place `x` with filter tap `w`; false where there is none. It may lie
// outside of y.
bool PlaceOfY(const ConvShape& shape, const Dims& x, const Dims& w, Dims* y) {
  *y = {x[0], w[0], w[1], 0, 0, 0};
  for (size_t s = 0; s < 3; ++s) {
    const int64_t place = x[3 + s] + shape.pad_before[s] - w[3 + s] * shape.dilation[s];
    if (place % shape.stride[s] != 0) return false;
    (*y)[3 + s] = place / shape.stride[s];
  }
  return true;
}

// Calls visit(w index, other index) for each tap and each place of `places` in the tap's group,
// where dimension 2 of `places` is the tap's dimension `channel`.
template <class Visit>
void ForEachTapAndPlace(const Dims& taps, size_t channel, const Dims& places, Visit&& visit) {
  ForEach({}, taps, [&](const Dims& w) {
    const Dims begin{0, w[0], w[channel], 0, 0, 0};
    const Dims end{places[0], w[0] + 1, w[channel] + 1, places[3], places[4], places[5]};
    ForEach(begin, end, [&](const Dims& place) { visit(w, place); });
  });
}

Tensor SumOfRows(const ConvShape& shape, const Tensor& y) {
  Tensor sums(shape.DimsOf(Operand::kBias, Direction::kBackwardBias));
  ForEach({}, y.dims, [&](const Dims& i) { sums.at({0, i[1], i[2], 0, 0, 0}) += y.at(i); });
  return sums;
}

}  // namespace

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
  const Dims taps = shape.DimsOf(Operand::kW, direction);
  if (direction == Direction::kBackwardBias) return SumOfRows(shape, y);
  Tensor out(shape.DimsOf(OutputOf(direction), direction));
  if (direction == Direction::kBackwardData) {
    ForEachTapAndPlace(taps, 2, out.dims, [&](const Dims& iw, const Dims& ix) {
      Dims iy{};
      if (PlaceOfY(shape, ix, iw, &iy)) out.at(ix) += Padded(y, iy) * w.at(iw);
    });
    return out;
  }
  ForEachTapAndPlace(taps, 1, shape.DimsOf(Operand::kY, direction),
                     [&](const Dims& iw, const Dims& iy) {
                       const double element = Padded(x, PlaceOfX(shape, iw, iy));
                       if (direction == Direction::kForward) {
                         out.at(iy) += element * w.at(iw);
                       } else {
                         out.at(iw) += element * y.at(iy);
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
  const int64_t taps = shape.Taps();
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
