// Cuts a transfer into what is copied and what is zeroed, so that nothing is written twice.
#include "device/cpu/copy.hpp"

#include <algorithm>
#include <utility>

#include "device/cpu/lattice.hpp"

namespace oocdnn::cpu {
namespace {

constexpr Dims kNoStrides{};

Region ValidRegion(const Transfer& transfer) {
  Region valid;
  for (int d = 0; d < 6; ++d) {
    valid.begin[d] = transfer.box.valid_begin[d] - transfer.box.origin[d];
    valid.end[d] = transfer.box.valid_end[d] - transfer.box.origin[d];
  }
  return Intersect(valid, {transfer.tile_begin, transfer.tile_end});
}

// Elements from the view's first element to box element 0. Box element 0 itself may lie outside
// the tensor, so this is a number and never made a pointer.
int64_t OriginOffset(const Transfer& transfer) {
  int64_t offset = 0;
  for (int d = 0; d < 6; ++d) offset += transfer.box.origin[d] * transfer.view.stride[d];
  return offset;
}

char* At(const void* base, int64_t element, DType dtype) {
  return static_cast<char*>(const_cast<void*>(base)) + element * SizeOf(dtype);
}

void ZeroLattices(const std::vector<Lattice>& lattices, const TileLayout& layout, void* tile,
                  Parallel& parallel) {
  for (const Lattice& lattice : lattices) {
    Zero({At(tile, lattice.to_offset, layout.dtype), layout.dtype, lattice.dim}, parallel);
  }
}

// Zeroes what `region` has and `valid` has not, slab by slab; both ends of dimension `skip` are
// left to the rows of the copy.
void ZeroAround(const Transfer& transfer, Region region, const Region& valid, int skip,
                Parallel& parallel) {
  const auto zero = [&](const Region& slab) {
    ZeroLattices(Lattices(*transfer.layout, kNoStrides, slab, true), *transfer.layout,
                 transfer.tile, parallel);
  };
  for (int d = 0; d < 6; ++d) {
    if (d == skip) continue;
    Region slab = region;
    slab.end[d] = valid.begin[d];
    zero(slab);
    slab = region;
    slab.begin[d] = valid.end[d];
    zero(slab);
    region.begin[d] = valid.begin[d];
    region.end[d] = valid.end[d];
  }
}

// The padded lanes behind the last channel, where valid elements reach it.
void ZeroLanes(const Transfer& transfer, const Region& valid, Parallel& parallel) {
  const TileLayout& layout = *transfer.layout;
  const int64_t lanes = layout.shape[1] * layout.shape[2] % layout.channel_block;
  if (lanes == 0) return;
  Region last = valid;  // empty where valid elements do not reach the last channel
  last.begin[1] = layout.shape[1] - 1;
  last.begin[2] = layout.shape[2] - 1;
  for (Lattice& lattice : Lattices(layout, kNoStrides, last, true)) {
    lattice.to_offset += 1;  // from the last channel itself to the lane behind it
    lattice.dim[2].extent -= 1;
    Zero({At(transfer.tile, lattice.to_offset, layout.dtype), layout.dtype, lattice.dim}, parallel);
  }
}

// The dimension whose neighbours are neighbours in the tile, where the copy can zero row ends.
int RowDimension(const TileLayout& layout) {
  if (layout.channel_block != 1) return -1;
  for (int d = 5; d >= 0; --d) {
    if (layout.stride[d] == 1 && layout.shape[d] > 1) return d;
  }
  return -1;
}

void FetchPlain(const Transfer& transfer, Parallel& parallel) {
  const TileLayout& layout = *transfer.layout;
  const Region region{transfer.tile_begin, transfer.tile_end};
  const Region valid = ValidRegion(transfer);
  if (valid.empty()) {
    return ZeroLattices(Lattices(layout, kNoStrides, region, true), layout, transfer.tile,
                        parallel);
  }
  const int row = RowDimension(layout);
  ZeroAround(transfer, region, valid, row, parallel);
  if (layout.channel_block != 1) ZeroLanes(transfer, valid, parallel);
  const int64_t origin = OriginOffset(transfer);
  for (const Lattice& lattice : Lattices(layout, transfer.view.stride, valid, false)) {
    StridedCopy copy{At(transfer.view.data, origin + lattice.from_offset, transfer.view.dtype),
                     transfer.view.dtype, At(transfer.tile, lattice.to_offset, layout.dtype),
                     layout.dtype, lattice.dim};
    if (row >= 0) {
      copy.head = valid.begin[row] - region.begin[row];
      copy.tail = region.end[row] - valid.end[row];
      copy.pad_dim = copy.head > 0 || copy.tail > 0 ? row : -1;
    }
    Copy(copy, parallel);
  }
}

void DrainPlain(const Transfer& transfer, Parallel& parallel) {
  const TileLayout& layout = *transfer.layout;
  const int64_t origin = OriginOffset(transfer);
  for (Lattice& lattice : Lattices(layout, transfer.view.stride, ValidRegion(transfer), false)) {
    for (StridedDim& dim : lattice.dim) std::swap(dim.from, dim.to);
    Copy({At(transfer.tile, lattice.to_offset, layout.dtype), layout.dtype,
          At(transfer.view.data, origin + lattice.from_offset, transfer.view.dtype),
          transfer.view.dtype, lattice.dim},
         parallel);
  }
}

const NativeLayout* NativeOf(const Transfer& transfer) {
  const auto* native = static_cast<const NativeLayout*>(transfer.layout->native);
  if (native == nullptr) return nullptr;
  return transfer.layout->opaque || native->CanCopy(transfer) ? native : nullptr;
}

Status OpaqueError(const TileLayout& layout, const char* what) {
  if (!layout.opaque) return {};
  return Error(Code::kUnsupported, "%s needs addresses, and the tile's layout has none", what);
}

// Channels that keep their place move as whole lanes; others one by one.
std::vector<Lattice> MoveLattices(const TileLayout& layout, const Region& region, bool in_place) {
  if (in_place || layout.channel_block == 1) {
    return Lattices(layout, kNoStrides, region, in_place);
  }
  std::vector<Lattice> lattices;
  Region one = region;
  for (one.begin[1] = region.begin[1]; one.begin[1] < region.end[1]; ++one.begin[1]) {
    one.end[1] = one.begin[1] + 1;
    for (one.begin[2] = region.begin[2]; one.begin[2] < region.end[2]; ++one.begin[2]) {
      one.end[2] = one.begin[2] + 1;
      lattices.push_back(Lattices(layout, kNoStrides, one, false).front());
    }
  }
  return lattices;
}

}  // namespace

Status FetchTile(const Transfer& transfer, Parallel& parallel) {
  if (const NativeLayout* native = NativeOf(transfer)) return native->Fetch(transfer, parallel);
  OOC_TRY(OpaqueError(*transfer.layout, "a fetch"));
  if (!Region{transfer.tile_begin, transfer.tile_end}.empty()) FetchPlain(transfer, parallel);
  return {};
}

Status DrainTile(const Transfer& transfer, Parallel& parallel) {
  if (const NativeLayout* native = NativeOf(transfer)) return native->Drain(transfer, parallel);
  OOC_TRY(OpaqueError(*transfer.layout, "a drain"));
  DrainPlain(transfer, parallel);
  return {};
}

Status MoveTile(const TileMove& move, Parallel& parallel) {
  const TileLayout& layout = *move.layout;
  OOC_TRY(OpaqueError(layout, "a move inside the device"));
  Region from{move.from_begin, {}}, to{move.to_begin, {}};
  for (int d = 0; d < 6; ++d) {
    from.end[d] = move.from_begin[d] + move.extent[d];
    to.end[d] = move.to_begin[d] + move.extent[d];
  }
  if (from.empty()) return {};
  const bool in_place = from.begin[1] == to.begin[1] && from.begin[2] == to.begin[2];
  const std::vector<Lattice> sources = MoveLattices(layout, from, in_place);
  const std::vector<Lattice> targets = MoveLattices(layout, to, in_place);
  for (size_t i = 0; i < sources.size(); ++i) {
    StridedCopy copy{At(move.from, sources[i].to_offset, layout.dtype), layout.dtype,
                     At(move.to, targets[i].to_offset, layout.dtype), layout.dtype, targets[i].dim};
    for (StridedDim& dim : copy.dim) dim.from = dim.to;
    Copy(copy, parallel);
  }
  return {};
}

int64_t BytesOf(const Transfer& transfer) {
  const Region valid = ValidRegion(transfer);
  int64_t bytes = SizeOf(transfer.view.dtype);
  for (int d = 0; d < 6; ++d) bytes *= std::max<int64_t>(valid.end[d] - valid.begin[d], 0);
  return bytes;
}

}  // namespace oocdnn::cpu
