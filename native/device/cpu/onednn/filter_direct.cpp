#include "device/cpu/onednn/filter_direct.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"

namespace oocdnn::cpu::onednn {
namespace {

bool IsFast(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

// The strides of `view`, but harmless ones where an extent of 1 makes them meaningless: oneDNN
// checks all of them for overlap.
Dims Cleaned(const TensorView& view, const Dims& shape) {
  int64_t span = 1;
  for (int d = 0; d < 6; ++d) {
    if (shape[d] > 1) span = std::max(span, Mul(view.stride[d], shape[d]));
  }
  Dims stride = view.stride;
  for (int d = 0; d < 6; ++d) stride[d] = shape[d] > 1 ? stride[d] : span;
  return stride;
}

}  // namespace

void* FilterDirect::ElementOf(const Transfer& transfer) {
  int64_t offset = 0;
  for (int d = 0; d < 6; ++d) offset += transfer.box.origin[d] * transfer.view.stride[d];
  return static_cast<std::byte*>(transfer.view.data) + offset * SizeOf(transfer.view.dtype);
}

bool FilterDirect::Suits(const Transfer& transfer) const {
  if (!IsFast(transfer.view.dtype)) return false;
  const Box& box = transfer.box;
  for (int d = 0; d < 6; ++d) {
    if (transfer.tile_begin[d] != 0 || transfer.tile_end[d] != shape_[d]) return false;
    if (box.valid_begin[d] > box.origin[d]) return false;
    if (box.valid_end[d] < box.origin[d] + shape_[d]) return false;
    if (shape_[d] > 1 && transfer.view.stride[d] <= 0) return false;
  }
  return true;
}

Result<Primitive> FilterDirect::Make(dnnl_engine_t engine, const Latest& key, bool fetch) const {
  OOC_ASSIGN(MemoryDesc tile, MemoryDesc::CopyOf(tile_.view()));
  OOC_ASSIGN(MemoryDesc outside,
             MemoryDesc::Strided(view_.FilterDims(shape_), key.dtype, key.stride));
  OOC_ASSIGN(const PrimitiveDesc reorder, fetch ? DescribeReorder(engine, outside, tile)
                                                : DescribeReorder(engine, tile, outside));
  if (reorder.IsReference()) return Error(Code::kUnsupported, "only a plain loop");
  std::vector<Argument> arguments;
  arguments.push_back({DNNL_ARG_FROM, std::move(fetch ? outside : tile)});
  arguments.push_back({DNNL_ARG_TO, std::move(fetch ? tile : outside)});
  return Primitive::Create(engine, reorder, std::move(arguments));
}

const Primitive* FilterDirect::Find(dnnl_engine_t engine, const Transfer& transfer, bool fetch) {
  if (!Suits(transfer)) return nullptr;
  Latest& latest = fetch ? fetch_ : drain_;
  const Extents stride = view_.FilterDims(Cleaned(transfer.view, shape_));
  if (latest.dtype != transfer.view.dtype || latest.stride != stride) {
    latest.dtype = transfer.view.dtype;
    latest.stride = stride;
    latest.reorder.reset();
    Result<Primitive> made = Make(engine, latest, fetch);
    if (made.ok()) latest.reorder = std::move(made).value();
  }
  return latest.reorder ? &*latest.reorder : nullptr;
}

}  // namespace oocdnn::cpu::onednn
