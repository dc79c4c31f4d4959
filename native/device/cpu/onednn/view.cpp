#include "device/cpu/onednn/view.hpp"

#include "base/checked.hpp"

namespace oocdnn::cpu::onednn {
namespace {

bool DoesNothing(const ConvShape& shape, int s) {
  return shape.in[s] == 1 && shape.filter[s] == 1 && shape.out[s] == 1 && shape.pad_before[s] == 0;
}

}  // namespace

View::View(const ConvShape& shape)
    : shape_(shape), spatial_(DoesNothing(shape, 0) ? 2 : 3), grouped_(shape.g > 1) {}

Extents View::Axes(const Spatial& values) const {
  Extents axes;
  for (int s = 3 - spatial_; s < 3; ++s) axes.Append(values[static_cast<size_t>(s)]);
  return axes;
}

Extents View::FilterDims(const Dims& dims) const {
  Extents extents;
  for (int d = grouped_ ? 0 : 1; d < 6; ++d) {
    if (d != 3 || spatial_ == 3) extents.Append(dims[static_cast<size_t>(d)]);
  }
  return extents;
}

Extents View::DimsOf(Operand operand) const {
  const Dims dims = shape_.DimsOf(operand, Direction::kForward);
  if (operand == Operand::kW) return FilterDims(dims);
  Extents extents{dims[0], dims[1] * dims[2]};
  const Extents axes = Axes({dims[3], dims[4], dims[5]});
  for (int s = 0; s < axes.rank; ++s) extents.Append(axes[s]);
  return extents;
}

Extents View::PadAfter() const {
  Spatial after{};
  for (int s = 0; s < 3; ++s) {
    after[s] = (shape_.out[s] - 1) * shape_.stride[s] + shape_.Reach(s) - shape_.in[s] -
               shape_.pad_before[s];
  }
  return Axes(after);
}

bool View::ToLayout(const MemoryDesc& desc, Operand operand, DType dtype,
                    TileLayout* layout) const {
  Blocking format;
  if (!desc.Read(&format) || format.block.rank > 1) return false;
  if (format.block.rank == 1 && format.block_dim[0] != 1) return false;
  const Extents dims = DimsOf(operand);
  const int64_t block = format.BlockOf(1);
  for (int d = 0; d < dims.rank; ++d) {
    if (format.padded[d] != (d == 1 ? RoundUp(dims[d], block) : dims[d])) return false;
  }
  *layout = TileLayout{};
  layout->dtype = dtype;
  layout->shape = shape_.DimsOf(operand, Direction::kForward);
  layout->channel_block = block;
  layout->bytes = desc.bytes();
  const Extents& stride = format.stride;
  layout->stride = {stride[0],
                    block == 1 ? layout->shape[2] * stride[1] : 0,
                    stride[1],
                    0,
                    stride[dims.rank - 2],
                    stride[dims.rank - 1]};
  layout->stride[3] = spatial_ == 3 ? stride[2] : layout->stride[4] * layout->shape[4];
  return true;
}

}  // namespace oocdnn::cpu::onednn
