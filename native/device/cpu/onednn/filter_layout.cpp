#include "device/cpu/onednn/filter_layout.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "device/cpu/onednn/threads.hpp"
#include "device/cpu/strided.hpp"

namespace oocdnn::cpu::onednn {
namespace {

// A dense piece should stay in the caches between its two steps.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// The length of a piece along a dimension that oneDNN cuts in blocks of `block`: whole blocks.
int64_t StepOf(const Dims& dims, int dim, int64_t block, DType dtype) {
  int64_t slice = SizeOf(dtype);
  for (int d = dim + 1; d < 6; ++d) slice = Mul(slice, dims[d]);
  const int64_t blocks = std::max<int64_t>(kPieceBytes / Mul(slice, block), 1);
  return std::min(Mul(blocks, block), dims[dim]);
}

// The copy between the valid elements of `transfer` within `piece` (a box of the tile, dense in
// `dense`) and the caller's tensor. False where there are none.
bool CopyOf(const Transfer& transfer, const Dims& begin, const Dims& end, DType dtype, void* dense,
            bool fetch, StridedCopy* copy) {
  Dims extent{};
  for (int d = 0; d < 6; ++d) extent[d] = end[d] - begin[d];
  const Dims stride = DenseStrides(extent);
  int64_t there = 0, here = 0;
  for (int d = 0; d < 6; ++d) {
    const Box& box = transfer.box;
    const int64_t first =
        std::max({begin[d], transfer.tile_begin[d], box.valid_begin[d] - box.origin[d]});
    const int64_t last = std::min({end[d], transfer.tile_end[d], box.valid_end[d] - box.origin[d]});
    if (first >= last) return false;
    there += (box.origin[d] + first) * transfer.view.stride[d];
    here += (first - begin[d]) * stride[d];
    copy->dim[d] = {last - first, fetch ? transfer.view.stride[d] : stride[d],
                    fetch ? stride[d] : transfer.view.stride[d]};
  }
  std::byte* const outside =
      static_cast<std::byte*>(transfer.view.data) + there * SizeOf(transfer.view.dtype);
  std::byte* const inside = static_cast<std::byte*>(dense) + here * SizeOf(dtype);
  copy->from = fetch ? outside : inside;
  copy->to = fetch ? inside : outside;
  copy->from_type = fetch ? transfer.view.dtype : dtype;
  copy->to_type = fetch ? dtype : transfer.view.dtype;
  return true;
}

int64_t Elements(const StridedCopy& copy) {
  int64_t elements = 1;
  for (const StridedDim& dim : copy.dim) elements *= dim.extent;
  return elements;
}

}  // namespace

Result<std::unique_ptr<FilterLayout>> FilterLayout::Make(std::shared_ptr<Runtime> runtime,
                                                         const View& view, const MemoryDesc& desc,
                                                         const Dims& dims, DType dtype, int threads,
                                                         bool drains) {
  Blocking format;
  if (!desc.Read(&format)) {
    return Error(Code::kUnsupported, "oneDNN's format for this filter is not a blocked one");
  }
  std::unique_ptr<FilterLayout> made(new FilterLayout);
  made->runtime_ = std::move(runtime);
  made->layout_.dtype = dtype;
  made->layout_.shape = dims;
  made->layout_.opaque = true;
  made->layout_.native = static_cast<const NativeLayout*>(made.get());
  made->layout_.bytes = desc.bytes();
  made->threads_ = threads;
  made->dim_ = view.grouped() ? 0 : 1;
  const int64_t block = format.BlockOf(0);
  OOC_ASSIGN(MemoryDesc tile, MemoryDesc::CopyOf(desc.view()));
  made->direct_.emplace(view, std::move(tile), dims);
  made->step_ = StepOf(dims, made->dim_, block, dtype);
  made->step_bytes_ = made->step_ / block * format.stride[0] * SizeOf(dtype);
  Dims piece = dims;
  const int64_t last = (made->Pieces() - 1) * made->step_;
  piece[made->dim_] = dims[made->dim_] - last;
  OOC_TRY(made->PoolForwardKind(view, desc, piece, last, drains, &made->last_));
  if (last == 0) return made;
  piece[made->dim_] = made->step_;
  OOC_TRY(made->PoolForwardKind(view, desc, piece, 0, drains, &made->inner_));
  return made;
}

Status FilterLayout::PoolForwardKind(const View& view, const MemoryDesc& desc, const Dims& piece,
                                     int64_t begin, bool drains, Kind* kind) {
  const Extents dims = view.FilterDims(piece);
  Extents offset = dims;
  for (int d = 0; d < offset.rank; ++d) offset[d] = d == 0 ? begin : 0;
  const dnnl_engine_t engine = runtime_->engine();
  const auto make = [&](bool fetch, Primitive* primitive) -> Status {
    OOC_ASSIGN(MemoryDesc tile, desc.Part(dims, offset));
    OOC_ASSIGN(MemoryDesc dense,
               MemoryDesc::Strided(dims, layout_.dtype, view.FilterDims(DenseStrides(piece))));
    OOC_ASSIGN(const PrimitiveDesc reorder,
               fetch ? DescribeReorder(engine, dense, tile) : DescribeReorder(engine, tile, dense));
    std::vector<Argument> arguments;
    arguments.push_back({DNNL_ARG_FROM, std::move(fetch ? dense : tile)});
    arguments.push_back({DNNL_ARG_TO, std::move(fetch ? tile : dense)});
    OOC_ASSIGN(*primitive, Primitive::Create(engine, reorder, std::move(arguments)));
    return {};
  };
  OOC_TRY(make(true, &kind->fetch));
  return drains ? make(false, &kind->drain) : Status();
}

int64_t FilterLayout::Pieces() const { return CeilDiv(layout_.shape[dim_], step_); }

FilterLayout::Piece FilterLayout::PieceAt(int64_t index, void* tile) const {
  Piece piece;
  piece.begin = index * step_;
  piece.end = std::min(piece.begin + step_, layout_.shape[dim_]);
  const bool last = index + 1 == Pieces();
  piece.kind = last ? &last_ : &inner_;
  // The format of the last piece holds its own distance from the tile's first byte.
  piece.tile = last ? tile : static_cast<std::byte*>(tile) + index * step_bytes_;
  return piece;
}

template <class Fn>
Status FilterLayout::ForPieces(const Transfer& transfer, const Fn& fn) const {
  int64_t bytes = step_ * SizeOf(layout_.dtype);
  for (int d = dim_ + 1; d < 6; ++d) bytes *= layout_.shape[d];
  std::byte* const dense = runtime_->Scratch(bytes);
  if (dense == nullptr) {
    return Error(Code::kOutOfMemory, "no %lld bytes of host memory for a piece of the filter",
                 static_cast<long long>(bytes));
  }
  for (int64_t i = 0; i < Pieces(); ++i) {
    const Piece piece = PieceAt(i, transfer.tile);
    Dims begin{}, end = layout_.shape;
    begin[dim_] = piece.begin;
    end[dim_] = piece.end;
    OOC_TRY(fn(piece, begin, end, dense));
  }
  return {};
}

Status FilterLayout::Fetch(const Transfer& transfer, Parallel&) const {
  const TeamSize team(threads_);
  OOC_TRY(team.Start());
  if (const Primitive* reorder = direct_->Find(runtime_->engine(), transfer, true)) {
    return reorder->Run(runtime_->stream(), {FilterDirect::ElementOf(transfer), transfer.tile});
  }
  return FetchPieces(transfer);
}

Status FilterLayout::Drain(const Transfer& transfer, Parallel&) const {
  const TeamSize team(threads_);
  OOC_TRY(team.Start());
  if (const Primitive* reorder = direct_->Find(runtime_->engine(), transfer, false)) {
    return reorder->Run(runtime_->stream(), {transfer.tile, FilterDirect::ElementOf(transfer)});
  }
  return DrainPieces(transfer);
}

Status FilterLayout::FetchPieces(const Transfer& transfer) const {
  return ForPieces(
      transfer,
      [&](const Piece& piece, const Dims& begin, const Dims& end, std::byte* dense) -> Status {
        int64_t elements = piece.end - piece.begin;
        for (int d = dim_ + 1; d < 6; ++d) elements *= layout_.shape[d];
        StridedCopy copy;
        const bool any = CopyOf(transfer, begin, end, layout_.dtype, dense, true, &copy);
        if (!any || Elements(copy) < elements) {
          std::memset(dense, 0, static_cast<size_t>(elements * SizeOf(layout_.dtype)));
        }
        OpenMpTeam team;
        if (any) Copy(copy, team);
        return piece.kind->fetch.Run(runtime_->stream(), {dense, piece.tile});
      });
}

Status FilterLayout::DrainPieces(const Transfer& transfer) const {
  return ForPieces(
      transfer,
      [&](const Piece& piece, const Dims& begin, const Dims& end, std::byte* dense) -> Status {
        StridedCopy copy;
        if (!CopyOf(transfer, begin, end, layout_.dtype, dense, false, &copy)) return {};
        OOC_TRY(piece.kind->drain.Run(runtime_->stream(), {piece.tile, dense}));
        OpenMpTeam team;
        Copy(copy, team);
        return {};
      });
}

}  // namespace oocdnn::cpu::onednn
