#include "testing/conformance_boxes.hpp"

#include <algorithm>

namespace oocdnn::testing {

Dims RandomDims(Random& random) {
  return {random.Between(1, 3), random.Between(1, 2), random.Between(1, 19),
          random.Between(1, 3), random.Between(1, 6), random.Between(1, 9)};
}

Box RandomBox(const Dims& dims, Random& random) {
  Box box;
  for (size_t d = 0; d < dims.size(); ++d) {
    box.origin[d] = random.Between(-2, dims[d]);
    box.extent[d] = random.Between(1, dims[d] + 3);
    box.valid_begin[d] = std::clamp<int64_t>(box.origin[d], 0, dims[d]);
    box.valid_end[d] =
        std::clamp<int64_t>(box.origin[d] + box.extent[d], box.valid_begin[d], dims[d]);
    // Elements that another tile has used already count as not valid.
    if (random.Between(0, 3) == 0 && box.valid_end[d] - box.valid_begin[d] > 1) {
      ++box.valid_begin[d];
    }
  }
  return box;
}

int64_t LeastExtent(const Pool& pool, int axis) {
  if (!pool.ceil) return pool.window[axis];
  int64_t extent = 1;
  while (pool.OutExtent(axis, extent) < 1) ++extent;
  return extent;
}

Part RandomPart(const Dims& extent, Random& random) {
  Part part;
  for (size_t d = 0; d < extent.size(); ++d) {
    part.begin[d] = random.Between(0, extent[d] - 1);
    part.end[d] = random.Between(part.begin[d] + 1, extent[d]);
    if (random.Between(0, 1) == 0) {
      part.begin[d] = 0;
      part.end[d] = extent[d];
    }
  }
  return part;
}

Operand RandomOperand(Random& random) { return static_cast<Operand>(random.Between(0, 2)); }

TileLayout RandomLayout(const Device& device, DType dtype, const Dims& extent, Operand operand,
                        Random& random) {
  const int64_t activations = device.capabilities().blocked_tiles ? 3 : 1;
  const int64_t kind = random.Between(0, operand == Operand::kW ? 0 : activations);
  if (kind <= 1) return PlainLayout(dtype, extent, kind == 1);
  return BlockedLayout(dtype, extent, kind == 2 ? 8 : 16);
}

bool IsValid(const Box& box, const Dims& index, Dims* at) {
  for (size_t d = 0; d < index.size(); ++d) {
    (*at)[d] = box.origin[d] + index[d];
    if ((*at)[d] < box.valid_begin[d] || (*at)[d] >= box.valid_end[d]) return false;
  }
  return true;
}

}  // namespace oocdnn::testing
