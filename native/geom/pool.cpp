#include "geom/pool.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {

int64_t Pool::Elements() const { return Mul(Mul(window[0], window[1]), window[2]); }

int64_t Pool::OutExtent(int axis, int64_t extent) const {
  if (window[axis] < 1 || stride[axis] < 1) return 0;
  const int64_t room = Add(Add(Add(extent, pad_before[axis]), pad_after[axis]), -window[axis]);
  if (room < 0) return ceil && extent > 0 && room > -stride[axis] ? 1 : 0;
  const int64_t last = room / stride[axis];
  const bool rest = room % stride[axis] != 0;
  const bool begins = Mul(Add(last, 1), stride[axis]) < Add(extent, pad_before[axis]);
  return Add(last, ceil && rest && begins ? 2 : 1);
}

int64_t Pool::RowsReached(int axis, int64_t extent) const {
  const int64_t last = (OutExtent(axis, extent) - 1) * stride[axis] - pad_before[axis];
  return std::clamp<int64_t>(last + window[axis], 0, extent);
}

int64_t Saving::RowBytes(int64_t elements) const { return CeilDiv(Mul(elements, bits), 8); }

}  // namespace oocdnn
