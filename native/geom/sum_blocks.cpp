#include "geom/sum_blocks.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

int64_t TapsOf(const ConvShape& shape) {
  return Mul(Mul(shape.filter[0], shape.filter[1]), shape.filter[2]);
}

}  // namespace

// Whole axes from the innermost on, for as long as they fit. The first axis that does not fit is
// cut evenly, and outer axes are cut into single steps.
PixelArray PixelBlockOf(const PixelArray& extent) {
  PixelArray block{};
  int64_t left = kPixelBlock;
  for (size_t i = block.size(); i-- > 0;) {
    const int64_t whole = std::max<int64_t>(extent[i], 1);
    block[i] = CeilDiv(whole, CeilDiv(whole, left));
    left = block[i] < whole ? 1 : left / whole;
  }
  return block;
}

PixelArray PixelBlockOf(const ConvShape& shape) {
  return PixelBlockOf(PixelArray{shape.n, shape.out[0], shape.out[1], shape.out[2]});
}

int64_t SummedChannelsOf(Direction direction, const ConvShape& shape) {
  return direction == Direction::kForward ? shape.c : shape.k;
}

int64_t GroupChannelsOf(const ConvShape& shape) {
  return std::max<int64_t>(kTapGroup / std::max<int64_t>(TapsOf(shape), 1), 1);
}

bool IsOneBlock(Direction direction, const ConvShape& shape) {
  return Mul(SummedChannelsOf(direction, shape), TapsOf(shape)) <= kTapBlock;
}

}  // namespace oocdnn
