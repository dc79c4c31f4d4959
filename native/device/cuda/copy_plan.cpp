// From transfers to strided copies.
#include "device/cuda/copy_plan.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/checked.hpp"

namespace oocdnn::cuda {
namespace {

struct Region {
  Dims begin{}, end{};
  [[nodiscard]] bool empty() const {
    for (int d = 0; d < 6; ++d) {
      if (begin[d] >= end[d]) return true;
    }
    return false;
  }
};

Region ValidRegion(const Transfer& transfer) {
  Region valid;
  for (int d = 0; d < 6; ++d) {
    const int64_t origin = transfer.box.origin[d];
    valid.begin[d] = std::max(transfer.box.valid_begin[d] - origin, transfer.tile_begin[d]);
    valid.end[d] = std::min(transfer.box.valid_end[d] - origin, transfer.tile_end[d]);
  }
  return valid;
}

uint64_t AddressAt(const void* base, int64_t element, DType dtype) {
  return reinterpret_cast<uint64_t>(base) + static_cast<uint64_t>(element * SizeOf(dtype));
}

int64_t OffsetOf(const Dims& stride, const Dims& index) {
  int64_t offset = 0;
  for (int d = 0; d < 6; ++d) offset += stride[d] * index[d];
  return offset;
}

void AddBox(const Region& region, const Dims& stride, ZeroArgs* zeros) {
  if (region.empty()) return;
  ZeroBox& box = zeros->box[zeros->boxes++];
  box.offset = OffsetOf(stride, region.begin);
  box.count = 1;
  for (int d = 0; d < 6; ++d) {
    const int64_t extent = region.end[d] - region.begin[d];
    box.extent[d] = static_cast<unsigned>(extent);
    box.count *= extent;
  }
}

bool Continues(const PlanDim& outer, const PlanDim& inner) {
  return outer.from == inner.from * inner.extent && outer.to == inner.to * inner.extent;
}

// Joins one pair of dimensions; false where none can be joined.
bool JoinOnce(std::vector<PlanDim>* dims) {
  for (PlanDim& inner : *dims) {
    for (auto outer = dims->begin(); outer != dims->end(); ++outer) {
      if (&*outer == &inner || !Continues(*outer, inner)) continue;
      inner.extent *= outer->extent;
      dims->erase(outer);
      return true;
    }
  }
  return false;
}

StridedCopy CutInHalf(StridedCopy* copy, size_t which) {
  StridedCopy rest = *copy;
  PlanDim &dim = copy->dim[which], &of_rest = rest.dim[which];
  const int64_t half = dim.extent / 2;
  dim.extent = half;
  of_rest.extent -= half;
  rest.from += static_cast<uint64_t>(half * dim.from);
  rest.to += static_cast<uint64_t>(half * dim.to);
  return rest;
}

size_t LongestOf(const StridedCopy& copy) {
  const auto longest =
      std::max_element(copy.dim.begin(), copy.dim.end(),
                       [](const PlanDim& a, const PlanDim& b) { return a.extent < b.extent; });
  return static_cast<size_t>(longest - copy.dim.begin());
}

// The dimension farthest out on the wire's side that can be halved and leaves 4 KiB of what is side
// by side there and 128 bytes on the other side.
size_t OutermostOf(const StridedCopy& copy, Side wire) {
  constexpr int64_t kLeastOnWire = 4096, kLeastBeyond = 128;
  const bool fetch = wire == Side::kFrom;
  const int64_t wire_size = SizeOf(fetch ? copy.from_type : copy.to_type);
  const int64_t other_size = SizeOf(fetch ? copy.to_type : copy.from_type);
  for (size_t d = copy.dim.size(); d-- > 0;) {
    const PlanDim& dim = copy.dim[d];
    const int64_t on_wire = std::abs(fetch ? dim.from : dim.to);
    const int64_t beyond = std::abs(fetch ? dim.to : dim.from);
    int64_t least = 1;
    if (on_wire == wire_size) least = kLeastOnWire / wire_size;
    if (beyond == other_size) least = std::max(least, kLeastBeyond / other_size);
    if (dim.extent >= 2 * least) return d;
  }
  return LongestOf(copy);
}

}  // namespace

int64_t StridedCopy::Elements() const {
  int64_t elements = 1;
  for (const PlanDim& d : dim) elements = Mul(elements, std::max<int64_t>(d.extent, 0));
  return elements;
}

StridedCopy CopyOf(const Transfer& transfer, Toward toward) {
  const TileLayout& layout = *transfer.layout;
  const Region valid = ValidRegion(transfer);
  Dims place{};
  for (int d = 0; d < 6; ++d) place[d] = transfer.box.origin[d] + valid.begin[d];
  const uint64_t view =
      AddressAt(transfer.view.data, OffsetOf(transfer.view.stride, place), transfer.view.dtype);
  const uint64_t tile =
      AddressAt(transfer.tile, OffsetOf(layout.stride, valid.begin), layout.dtype);
  const bool fetch = toward == Toward::kTile;
  StridedCopy copy{fetch ? view : tile,
                   fetch ? tile : view,
                   fetch ? transfer.view.dtype : layout.dtype,
                   fetch ? layout.dtype : transfer.view.dtype,
                   {}};
  for (int d = 0; d < 6; ++d) {
    const int64_t in_view = transfer.view.stride[d] * SizeOf(transfer.view.dtype);
    const int64_t in_tile = layout.stride[d] * SizeOf(layout.dtype);
    copy.dim.push_back({std::max<int64_t>(valid.end[d] - valid.begin[d], 0),
                        fetch ? in_view : in_tile, fetch ? in_tile : in_view});
  }
  return copy;
}

StridedCopy CopyOf(const TileMove& move) {
  const TileLayout& layout = *move.layout;
  StridedCopy copy{AddressAt(move.from, OffsetOf(layout.stride, move.from_begin), layout.dtype),
                   AddressAt(move.to, OffsetOf(layout.stride, move.to_begin), layout.dtype),
                   layout.dtype,
                   layout.dtype,
                   {}};
  for (int d = 0; d < 6; ++d) {
    const int64_t stride = layout.stride[d] * SizeOf(layout.dtype);
    copy.dim.push_back({std::max<int64_t>(move.extent[d], 0), stride, stride});
  }
  return copy;
}

// Slab by slab: what lies before and behind the valid part of one dimension, within the valid part
// of the dimensions before.
ZeroArgs ZerosOf(const Transfer& transfer) {
  const TileLayout& layout = *transfer.layout;
  ZeroArgs zeros{};
  zeros.to = transfer.tile;
  zeros.size = static_cast<int>(SizeOf(layout.dtype));
  for (int d = 0; d < 6; ++d) zeros.stride[d] = layout.stride[d];
  Region region{transfer.tile_begin, transfer.tile_end};
  const Region valid = ValidRegion(transfer);
  if (valid.empty()) {
    AddBox(region, layout.stride, &zeros);
    return zeros;
  }
  for (int d = 0; d < 6; ++d) {
    Region slab = region;
    slab.end[d] = valid.begin[d];
    AddBox(slab, layout.stride, &zeros);
    slab = region;
    slab.begin[d] = valid.end[d];
    AddBox(slab, layout.stride, &zeros);
    region.begin[d] = valid.begin[d];
    region.end[d] = valid.end[d];
  }
  return zeros;
}

void Simplify(StridedCopy* copy, Side by) {
  std::vector<PlanDim>& dims = copy->dim;
  std::erase_if(dims, [](const PlanDim& dim) { return dim.extent == 1; });
  while (JoinOnce(&dims)) {
  }
  std::stable_sort(dims.begin(), dims.end(), [by](const PlanDim& a, const PlanDim& b) {
    return by == Side::kFrom ? std::abs(a.from) < std::abs(b.from)
                             : std::abs(a.to) < std::abs(b.to);
  });
}

int64_t ElementBytes(const StridedCopy& copy, Side side) {
  return SizeOf(side == Side::kFrom ? copy.from_type : copy.to_type);
}

int64_t BytesOf(const StridedCopy& copy, Side side) {
  return Mul(copy.Elements(), ElementBytes(copy, side));
}

AddressRange RangeOf(const StridedCopy& copy, Side side) {
  int64_t low = 0, high = ElementBytes(copy, side);
  for (const PlanDim& dim : copy.dim) {
    const int64_t reach = (dim.extent - 1) * (side == Side::kFrom ? dim.from : dim.to);
    (reach < 0 ? low : high) += reach;
  }
  const uint64_t base = side == Side::kFrom ? copy.from : copy.to;
  return {base + static_cast<uint64_t>(low), base + static_cast<uint64_t>(high)};
}

StridedCopy CutInHalf(StridedCopy* copy) { return CutInHalf(copy, LongestOf(*copy)); }

std::vector<StridedCopy> PiecesOf(const StridedCopy& copy, Side wire, int64_t bytes) {
  const int64_t size = ElementBytes(copy, wire);
  std::vector<StridedCopy> pieces, large{copy};
  while (!large.empty()) {
    StridedCopy piece = std::move(large.back());
    large.pop_back();
    const int64_t elements = piece.Elements();
    if (elements <= 1 || Mul(elements, size) <= bytes) {
      pieces.push_back(std::move(piece));
      continue;
    }
    large.push_back(CutInHalf(&piece, OutermostOf(piece, wire)));
    large.push_back(std::move(piece));
  }
  return pieces;
}

Relay RelayOf(const StridedCopy& copy, Side wire, uint64_t middle) {
  const bool fetch = wire == Side::kFrom;
  const DType type = fetch ? copy.from_type : copy.to_type;
  Relay relay{copy, copy};
  relay.first.to = relay.second.from = middle;
  relay.first.to_type = relay.second.from_type = type;
  int64_t dense = SizeOf(type);
  for (size_t d = 0; d < copy.dim.size(); ++d) {
    relay.first.dim[d].to = relay.second.dim[d].from = dense;
    dense *= copy.dim[d].extent;
  }
  for (StridedCopy* half : {&relay.first, &relay.second}) Simplify(half, wire);
  return relay;
}

}  // namespace oocdnn::cuda
