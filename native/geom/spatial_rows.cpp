// The arithmetic of halos, strides and padding on one axis.
#include "geom/spatial_rows.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {

SpatialRows RowsRead(const ConvShape& shape, int s, int64_t y_begin, int64_t y_rows) {
  SpatialRows x;
  x.begin = y_begin * shape.stride[s] - shape.pad_before[s];
  const int64_t x_end = x.begin + (y_rows - 1) * shape.stride[s] + shape.Reach(s);
  x.valid_begin = std::clamp<int64_t>(x.begin, 0, shape.in[s]);
  x.valid_end = std::clamp<int64_t>(x_end, x.valid_begin, shape.in[s]);
  return x;
}

int64_t FirstRow(const ConvShape& shape, int s, int64_t dx_row) {
  return FloorDiv(dx_row + shape.pad_before[s] - (shape.filter[s] - 1) * shape.dilation[s],
                  shape.stride[s]);
}

}  // namespace oocdnn
