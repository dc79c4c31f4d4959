// FilterDirect: reorders between the caller's filter and the tile in one step, for the transfers
// that oneDNN can do so: whole, unmirrored, in an element type that it knows.
//
// It remembers the latest reorder each way, since the tiles of a plan share their strides. Only for
// the one thread that runs copies and engines.
#pragma once

#include <optional>
#include <utility>

#include "device/cpu/onednn/primitives.hpp"
#include "device/cpu/onednn/view.hpp"

namespace oocdnn::cpu::onednn {

class FilterDirect {
 public:
  // `tile` is the format of a filter tile of `shape`.
  FilterDirect(const View& view, MemoryDesc tile, const Dims& shape)
      : view_(view), tile_(std::move(tile)), shape_(shape) {}

  // The reorder from or to the memory at ElementOf(transfer), or null.
  const Primitive* Find(dnnl_engine_t engine, const Transfer& transfer, bool fetch);

  // The first element of the transfer's box in the caller's memory.
  static void* ElementOf(const Transfer& transfer);

 private:
  struct Latest {
    DType dtype = DType::kFloat64;  // never asked for
    Extents stride;
    std::optional<Primitive> reorder;  // empty: refused
  };

  [[nodiscard]] bool Suits(const Transfer& transfer) const;
  [[nodiscard]] Result<Primitive> Make(dnnl_engine_t engine, const Latest& key, bool fetch) const;

  View view_;
  MemoryDesc tile_;
  Dims shape_;
  Latest fetch_, drain_;
};

}  // namespace oocdnn::cpu::onednn
