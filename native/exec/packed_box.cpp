#include "exec/packed_box.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kLargestGap = 8;

}  // namespace

std::array<int, 6> SlowestFirst(const Dims& stride) {
  std::array<int, 6> order{};
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return std::llabs(stride[a]) > std::llabs(stride[b]); });
  return order;
}

// The fastest dimension that has more than one element, where its stride is small.
Packing PackingOf(DType dtype, const Dims& stride, const Dims& extent) {
  Packing packing{dtype, stride, -1};
  const std::array<int, 6> order = SlowestFirst(stride);
  const auto fastest =
      std::find_if(order.rbegin(), order.rend(), [&](int d) { return extent[d] > 1; });
  if (fastest == order.rend()) return packing;
  if (stride[*fastest] > 1 && stride[*fastest] <= kLargestGap) packing.gapped = *fastest;
  return packing;
}

PackedBox PackedLayout(const Packing& packing, const Dims& extent) {
  PackedBox packed;
  int64_t next = 1;
  const std::array<int, 6> order = SlowestFirst(packing.stride);
  for (int i = 5; i >= 0; --i) {
    const int d = order[i];
    const int64_t step = d == packing.gapped ? packing.stride[d] : 1;
    packed.stride[d] = next * step;
    next = Mul(next, Mul(extent[d], step));
  }
  packed.bytes = Mul(next, SizeOf(packing.dtype));
  return packed;
}

// The trailing dimensions that one run covers are contiguous in the tensor and complete in the box.
Runs::Runs(const Packing& packing, const Dims& begin, const Dims& end, bool writing) {
  const Dims& stride = packing.stride;
  const int64_t size = SizeOf(packing.dtype);
  Dims extent{};
  for (int d = 0; d < 6; ++d) {
    extent[d] = end[d] - begin[d];
    start_ += begin[d] * stride[d] * size;
    if (extent[d] <= 0) count_ = 0;
  }
  if (count_ == 0) return;
  const PackedBox packed = PackedLayout(packing, extent);
  const std::array<int, 6> order = SlowestFirst(stride);
  int64_t elements = 1, next = 1;
  int i = 5;
  for (; i >= 0; --i) {
    const int d = order[i];
    if (extent[d] == 1) continue;
    const bool gapped = d == packing.gapped && !writing;
    if (stride[d] != next && !gapped) break;
    elements = (extent[d] - 1) * stride[d] + elements;
    if (gapped) {
      --i;
      break;
    }
    next = elements;
  }
  bytes_ = elements * size;
  for (int j = 0; j <= i; ++j) {
    const int d = order[j];
    if (extent[d] == 1) continue;
    outer_.push_back({extent[d], stride[d] * size, packed.stride[d] * size});
    count_ = Mul(count_, extent[d]);
  }
}

Runs::Cursor::Cursor(const Runs& runs, int64_t first) : runs_(runs), tensor_(runs.start_) {
  for (size_t i = runs.outer_.size(); i-- > 0;) {
    const Outer& outer = runs.outer_[i];
    at_[i] = first % outer.extent;
    first /= outer.extent;
    tensor_ += at_[i] * outer.tensor;
    packed_ += at_[i] * outer.packed;
  }
}

void Runs::Cursor::Next() {
  for (size_t i = runs_.outer_.size(); i-- > 0;) {
    const Outer& outer = runs_.outer_[i];
    tensor_ += outer.tensor;
    packed_ += outer.packed;
    if (++at_[i] < outer.extent) return;
    tensor_ -= outer.extent * outer.tensor;
    packed_ -= outer.extent * outer.packed;
    at_[i] = 0;
  }
}

}  // namespace oocdnn
