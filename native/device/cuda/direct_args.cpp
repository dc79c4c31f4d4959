// Arguments of the direct and the depthwise kernels, from the shape of a tile.
#include "device/cuda/direct_args.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "geom/sum_blocks.hpp"

namespace oocdnn::cuda {
namespace {

static_assert(kDirectBlock == kTapBlock);

void SetGather(const TileOp& op, DirectArgs* args) {
  const ConvShape& shape = op.shape;
  const bool forward = op.direction == Direction::kForward;
  const Spatial& source = forward ? shape.in : shape.out;
  const Spatial& target = forward ? shape.out : shape.in;
  args->backward = forward ? 0 : 1;
  args->channels = static_cast<int>(forward ? shape.k : shape.c);
  args->reduced = static_cast<int>(forward ? shape.c : shape.k);
  args->one_block = IsOneBlock(op.direction, shape) ? 1 : 0;
  args->group_channels = static_cast<int>(GroupChannelsOf(shape));
  for (int d = 0; d < 3; ++d) {
    args->in[d] = static_cast<int>(source[d]);
    args->out_extent[d] = static_cast<int>(target[d]);
    const int common = forward ? args->stride[d] : std::gcd(args->stride[d], args->dilation[d]);
    args->tap_step[d] = args->stride[d] / common;
    args->place_step[d] = forward ? args->dilation[d] : -args->dilation[d] / common;
  }
}

void SetFilter(const TileOp& op, DirectArgs* args) {
  const ConvShape& shape = op.shape;
  args->channels = static_cast<int>(shape.k);
  args->reduced = static_cast<int>(shape.c);
  for (int d = 0; d < 3; ++d) args->in[d] = static_cast<int>(shape.in[d]);
  args->wide = NeedsWideSums(shape, op.accumulates) || op.dtype == DType::kFloat64 ? 1 : 0;
  const PixelArray extent{shape.n, shape.out[0], shape.out[1], shape.out[2]};
  const PixelArray block = PixelBlockOf(shape);
  for (size_t i = 0; i < extent.size(); ++i) {
    args->extent[i] = static_cast<int>(extent[i]);
    args->block[i] = static_cast<int>(block[i]);
  }
}

}  // namespace

LaunchShape ShapeOf(Long count) {
  constexpr int kThreads = 256;
  return {std::min<Long>(CeilDiv(count, kThreads), kMostBlocks), kThreads, 0};
}

TileStrides StridesOf(const TileLayout& layout) {
  TileStrides strides{};
  std::transform(layout.stride.begin(), layout.stride.end(), strides.at,
                 [](int64_t stride) { return static_cast<int>(stride); });
  return strides;
}

DirectArgs DirectArgsOf(const TileOp& op) {
  const ConvShape& shape = op.shape;
  DirectArgs args{};
  args.type = static_cast<int>(op.dtype);
  args.n = static_cast<int>(shape.n);
  args.g = static_cast<int>(shape.g);
  for (int d = 0; d < 3; ++d) {
    args.filter[d] = static_cast<int>(shape.filter[d]);
    args.stride[d] = static_cast<int>(shape.stride[d]);
    args.dilation[d] = static_cast<int>(shape.dilation[d]);
  }
  if (op.direction == Direction::kBackwardFilter) {
    SetFilter(op, &args);
  } else {
    SetGather(op, &args);
  }
  return args;
}

void PlaceBlocks(const Spatial& origin, DirectArgs* args) {
  for (int i = 0; i < 4; ++i) {
    if (i > 0) args->first[i] = static_cast<int>(origin[i - 1] % args->block[i]);
    args->blocks[i] = static_cast<int>(CeilDiv(args->first[i] + args->extent[i], args->block[i]));
  }
}

Status CheckElements(const TileOp& op) {
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    const int64_t elements = Product(op.shape.DimsOf(operand, op.direction));
    if (elements > INT32_MAX) {
      return Error(Code::kUnsupported, "takes tiles below 2^31 elements, and %s has %lld",
                   Name(operand, op.direction), static_cast<long long>(elements));
    }
  }
  return {};
}

Status CheckExtents(const ConvShape& shape, const Spatial& most) {
  for (int d = 0; d < 3; ++d) {
    const int64_t padded = Add(shape.in[d], Add(shape.pad_before[d], shape.pad_after[d]));
    const int64_t largest = std::max({padded, shape.out[d], shape.stride[d], shape.Reach(d)});
    if (largest <= most[d]) continue;
    return Error(Code::kUnsupported,
                 "takes at most %lld elements, padding and windows of %c, not %lld",
                 static_cast<long long>(most[d]), "DHW"[d], static_cast<long long>(largest));
  }
  return {};
}

}  // namespace oocdnn::cuda
