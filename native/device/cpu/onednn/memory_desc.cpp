#include "device/cpu/onednn/memory_desc.hpp"

#include <utility>

namespace oocdnn::cpu::onednn {

int64_t Blocking::BlockOf(int dim) const {
  int64_t product = 1;
  for (int i = 0; i < block.rank; ++i) product *= block_dim[i] == dim ? block[i] : 1;
  return product;
}

dnnl_data_type_t DataTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return dnnl_f32;
    case DType::kBFloat16: return dnnl_bf16;
    case DType::kFloat16: return dnnl_f16;
    case DType::kFloat64:
    case DType::kByte: break;
  }
  return dnnl_data_type_undef;
}

namespace {

Extents ToExtents(int rank, const dnnl_dims_t& values) {
  Extents extents;
  for (int d = 0; d < rank; ++d) extents.Append(values[d]);
  return extents;
}

}  // namespace

#if DNNL_VERSION_MAJOR >= 3

Result<MemoryDesc> MemoryDesc::Tagged(const Extents& dims, DType dtype, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t handle = nullptr;
  OOC_TRY(Check(
      dnnl_memory_desc_create_with_tag(&handle, dims.rank, dims.data(), DataTypeOf(dtype), tag),
      "a tensor format"));
  MemoryDesc desc;
  desc.handle_.reset(handle);
  return desc;
}

Result<MemoryDesc> MemoryDesc::Strided(const Extents& dims, DType dtype, const Extents& stride) {
  dnnl_memory_desc_t handle = nullptr;
  OOC_TRY(Check(dnnl_memory_desc_create_with_strides(&handle, dims.rank, dims.data(),
                                                     DataTypeOf(dtype), stride.data()),
                "a strided tensor"));
  MemoryDesc desc;
  desc.handle_.reset(handle);
  return desc;
}

Result<MemoryDesc> MemoryDesc::CopyOf(MemoryDescView view) {
  dnnl_memory_desc_t handle = nullptr;
  OOC_TRY(Check(dnnl_memory_desc_clone(&handle, view), "a copy of a tensor format"));
  MemoryDesc desc;
  desc.handle_.reset(handle);
  return desc;
}

Result<MemoryDesc> MemoryDesc::Part(const Extents& dims, const Extents& begin) const {
  dnnl_memory_desc_t handle = nullptr;
  OOC_TRY(Check(dnnl_memory_desc_create_submemory(&handle, view(), dims.data(), begin.data()),
                "a part of a tensor"));
  MemoryDesc desc;
  desc.handle_.reset(handle);
  return desc;
}

bool MemoryDesc::Read(Blocking* blocking) const {
  dnnl_format_kind_t kind = dnnl_format_kind_undef;
  dnnl_dim_t offset = 0;
  int rank = 0, blocks = 0;
  const dnnl_dims_t *padded = nullptr, *stride = nullptr, *sizes = nullptr, *dims = nullptr;
  const auto asks = [&](dnnl_query_t what, void* answer) {
    return dnnl_memory_desc_query(view(), what, answer) == dnnl_success;
  };
  const bool known = asks(dnnl_query_format_kind, &kind) && kind == dnnl_blocked &&
                     asks(dnnl_query_submemory_offset_s64, &offset) && offset == 0 &&
                     asks(dnnl_query_ndims_s32, &rank) && asks(dnnl_query_padded_dims, &padded) &&
                     asks(dnnl_query_strides, &stride) &&
                     asks(dnnl_query_inner_nblks_s32, &blocks) &&
                     asks(dnnl_query_inner_blks, &sizes) && asks(dnnl_query_inner_idxs, &dims);
  if (!known) return false;
  *blocking = {ToExtents(rank, *padded), ToExtents(rank, *stride), ToExtents(blocks, *sizes),
               ToExtents(blocks, *dims)};
  return true;
}

MemoryDescView MemoryDesc::view() const { return handle_.get(); }

#else

Result<MemoryDesc> MemoryDesc::Tagged(const Extents& dims, DType dtype, dnnl_format_tag_t tag) {
  MemoryDesc desc;
  OOC_TRY(Check(
      dnnl_memory_desc_init_by_tag(&desc.desc_, dims.rank, dims.data(), DataTypeOf(dtype), tag),
      "a tensor format"));
  return desc;
}

Result<MemoryDesc> MemoryDesc::Strided(const Extents& dims, DType dtype, const Extents& stride) {
  MemoryDesc desc;
  OOC_TRY(Check(dnnl_memory_desc_init_by_strides(&desc.desc_, dims.rank, dims.data(),
                                                 DataTypeOf(dtype), stride.data()),
                "a strided tensor"));
  return desc;
}

Result<MemoryDesc> MemoryDesc::CopyOf(MemoryDescView view) {
  MemoryDesc desc;
  desc.desc_ = *view;
  return desc;
}

Result<MemoryDesc> MemoryDesc::Part(const Extents& dims, const Extents& begin) const {
  MemoryDesc desc;
  OOC_TRY(Check(dnnl_memory_desc_init_submemory(&desc.desc_, &desc_, dims.data(), begin.data()),
                "a part of a tensor"));
  return desc;
}

bool MemoryDesc::Read(Blocking* blocking) const {
  if (desc_.format_kind != dnnl_blocked || desc_.offset0 != 0) return false;
  const dnnl_blocking_desc_t& format = desc_.format_desc.blocking;
  *blocking = {ToExtents(desc_.ndims, desc_.padded_dims), ToExtents(desc_.ndims, format.strides),
               ToExtents(format.inner_nblks, format.inner_blks),
               ToExtents(format.inner_nblks, format.inner_idxs)};
  return true;
}

MemoryDescView MemoryDesc::view() const { return &desc_; }

#endif

int64_t MemoryDesc::bytes() const {
  return static_cast<int64_t>(dnnl_memory_desc_get_size(view()));
}

}  // namespace oocdnn::cpu::onednn
