// MemoryDesc: oneDNN's description of how a tensor lies in memory, as a value of ours.
//
// oneDNN 2 has an open struct for it, oneDNN 3 a handle; only memory_desc.cpp knows which.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/dtype.hpp"
#include "device/cpu/onednn/handles.hpp"

namespace oocdnn::cpu::onednn {

// One number for each dimension of a oneDNN tensor.
struct Extents {
  int rank = 0;
  std::array<int64_t, DNNL_MAX_NDIMS> value{};

  Extents() = default;
  Extents(std::initializer_list<int64_t> values) {
    for (const int64_t v : values) Append(v);
  }
  void Append(int64_t v) { value[static_cast<size_t>(rank++)] = v; }
  int64_t& operator[](int d) { return value[static_cast<size_t>(d)]; }
  const int64_t& operator[](int d) const { return value[static_cast<size_t>(d)]; }
  [[nodiscard]] const int64_t* data() const { return value.data(); }
  auto operator<=>(const Extents&) const = default;
};

// The strides of a format that is strides and inner blocks, the last block innermost.
struct Blocking {
  Extents padded, stride;
  Extents block, block_dim;  // size of each inner block, and the dimension that it cuts

  // The product of the blocks of one dimension.
  [[nodiscard]] int64_t BlockOf(int dim) const;
};

dnnl_data_type_t DataTypeOf(DType dtype);

#if DNNL_VERSION_MAJOR >= 3
using MemoryDescView = const_dnnl_memory_desc_t;
#else
using MemoryDescView = const dnnl_memory_desc_t*;
#endif

class MemoryDesc {
 public:
  MemoryDesc() = default;
  static Result<MemoryDesc> Tagged(const Extents& dims, DType dtype, dnnl_format_tag_t tag);
  static Result<MemoryDesc> Strided(const Extents& dims, DType dtype, const Extents& stride);
  static Result<MemoryDesc> CopyOf(MemoryDescView view);

  // The part of this tensor that begins at `begin`; addressed from this tensor's first byte.
  [[nodiscard]] Result<MemoryDesc> Part(const Extents& dims, const Extents& begin) const;
  // False where the format is not strides and blocks that start at the first byte.
  bool Read(Blocking* blocking) const;
  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] MemoryDescView view() const;

 private:
#if DNNL_VERSION_MAJOR >= 3
  Handle<dnnl_memory_desc_t, dnnl_memory_desc_destroy> handle_;
#else
  dnnl_memory_desc_t desc_{};
#endif
};

}  // namespace oocdnn::cpu::onednn
