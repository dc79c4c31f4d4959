// View: how oneDNN sees the tensors of a tile, and how we see the formats it chooses.
//
// oneDNN merges groups and channels of activations to one dimension, knows groups of filters only
// where there are several, and has two or three spatial dimensions here: D is there in three.
#pragma once

#include "device/cpu/onednn/memory_desc.hpp"
#include "device/device.hpp"

namespace oocdnn::cpu::onednn {

class View {
 public:
  explicit View(const ConvShape& shape);

  [[nodiscard]] int spatial() const { return spatial_; }
  [[nodiscard]] bool grouped() const { return grouped_; }
  // `operand` is kX, kW or kY.
  [[nodiscard]] Extents DimsOf(Operand operand) const;
  // The numbers of the spatial axes that oneDNN sees, outermost first.
  [[nodiscard]] Extents Axes(const Spatial& values) const;
  // Our six dimensions of a filter as oneDNN's (its only group, if there is one, left out).
  [[nodiscard]] Extents FilterDims(const Dims& dims) const;

  // The padding behind that makes oneDNN's own arithmetic give exactly `out` from `in`; negative
  // where the last elements of `in` meet no filter tap. (Backward data may have such elements.)
  [[nodiscard]] Extents PadAfter() const;

  // False where the format is more than strides and one block of channels.
  bool ToLayout(const MemoryDesc& desc, Operand operand, DType dtype, TileLayout* layout) const;

 private:
  ConvShape shape_;
  int spatial_ = 2;
  bool grouped_ = false;
};

}  // namespace oocdnn::cpu::onednn
