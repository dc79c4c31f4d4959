#include "exec/cut.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {

// Whole slices of the slowest dimension where one fits, else parts of one, and so on.
Dims LargestPiece(const Packing& packing, const Dims& extent, int64_t bytes) {
  Dims most = extent;
  for (const int d : SlowestFirst(packing.stride)) {
    const int64_t all = PackedLayout(packing, most).bytes;
    if (all <= bytes) break;
    const int64_t fitting = std::max<int64_t>(bytes / CeilDiv(all, most[d]), 1);
    most[d] = CeilDiv(most[d], CeilDiv(most[d], fitting));
  }
  return most;
}

Cut::Cut(const Packing& packing, const Piece& box, const Dims& most)
    : order_(SlowestFirst(packing.stride)), box_(box) {
  bool empty = false;
  for (int d = 0; d < 6; ++d) empty = empty || box.begin[d] >= box.end[d];
  for (int d = 0; d < 6; ++d) {
    const int64_t extent = box.end[d] - box.begin[d];
    parts_[d] = empty ? 1 : CeilDiv(extent, most[d]);
    step_[d] = CeilDiv(extent, parts_[d]);
    count_ = Mul(count_, parts_[d]);
  }
}

bool Cut::Next(Piece* piece) {
  if (next_ == count_) return false;
  int64_t rest = next_++;
  for (int i = 5; i >= 0; --i) {
    const int d = order_[i];
    const int64_t part = rest % parts_[d];
    rest /= parts_[d];
    piece->begin[d] = box_.begin[d] + part * step_[d];
    piece->end[d] = part + 1 == parts_[d] ? box_.end[d] : piece->begin[d] + step_[d];
  }
  return true;
}

}  // namespace oocdnn
