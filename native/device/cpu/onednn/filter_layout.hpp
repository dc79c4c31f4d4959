// FilterLayout: whole-tile transfers of filters, whose format only oneDNN knows.
//
// What oneDNN can do in one step it does. Any other transfer runs over pieces of the outermost
// dimension (groups, or output channels), each in two steps: the caller's strided elements to or
// from a small dense piece by our own copies, which know any stride, dtype and clipping, and that
// piece to or from the tile by a oneDNN reorder.
#pragma once

#include <memory>
#include <optional>

#include "device/cpu/engine.hpp"
#include "device/cpu/onednn/filter_direct.hpp"
#include "device/cpu/onednn/primitives.hpp"
#include "device/cpu/onednn/runtime.hpp"
#include "device/cpu/onednn/view.hpp"

namespace oocdnn::cpu::onednn {

class FilterLayout final : public NativeLayout {
 public:
  // `desc` is what oneDNN chose for the filter `dims`. `drains`: Drain will be called too.
  static Result<std::unique_ptr<FilterLayout>> Make(std::shared_ptr<Runtime> runtime,
                                                    const View& view, const MemoryDesc& desc,
                                                    const Dims& dims, DType dtype, int threads,
                                                    bool drains);

  [[nodiscard]] const TileLayout& layout() const { return layout_; }
  [[nodiscard]] bool CanCopy(const Transfer&) const override { return true; }
  Status Fetch(const Transfer& transfer, Parallel& parallel) const override;
  Status Drain(const Transfer& transfer, Parallel& parallel) const override;

 private:
  // A range of the outermost dimension, and the reorders for a dense piece of its length. The last
  // piece has a format of its own, because the padding behind the filter is its to fill.
  struct Kind {
    Primitive fetch, drain;
  };
  struct Piece {
    int64_t begin = 0, end = 0;
    const Kind* kind = nullptr;
    void* tile = nullptr;
  };

  FilterLayout() = default;
  Status PoolForwardKind(const View& view, const MemoryDesc& desc, const Dims& piece, int64_t begin,
                         bool drains, Kind* kind);
  [[nodiscard]] int64_t Pieces() const;
  [[nodiscard]] Piece PieceAt(int64_t index, void* tile) const;
  Status FetchPieces(const Transfer& transfer) const;
  Status DrainPieces(const Transfer& transfer) const;
  template <class Fn>
  Status ForPieces(const Transfer& transfer, const Fn& fn) const;

  std::shared_ptr<Runtime> runtime_;
  TileLayout layout_;
  int threads_ = 1;
  int dim_ = 0;             // of ours: the dimension that is cut
  int64_t step_ = 1;        // its length in a piece
  int64_t step_bytes_ = 0;  // from one piece to the next in the tile
  Kind inner_, last_;
  mutable std::optional<FilterDirect> direct_;
};

}  // namespace oocdnn::cpu::onednn
