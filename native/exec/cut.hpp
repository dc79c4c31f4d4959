// A box cut into pieces of about one size, in the order in which a tensor has them in memory.
// Arithmetic only.
#pragma once

#include "exec/packed_box.hpp"

namespace oocdnn {

// The largest piece of boxes of `extent` elements of which no piece takes more than `bytes` when it
// is packed, if it has more than one element.
Dims LargestPiece(const Packing& packing, const Dims& extent, int64_t bytes);

// Elements [begin, end) of a tensor.
struct Piece {
  Dims begin{}, end{};
};

class Cut {
 public:
  // Pieces of at most `most` elements in each dimension. An empty box is one piece.
  Cut(const Packing& packing, const Piece& box, const Dims& most);

  [[nodiscard]] int64_t count() const { return count_; }
  // The pieces one by one; false after the last.
  bool Next(Piece* piece);

 private:
  std::array<int, 6> order_;  // of dimensions, slowest first
  Piece box_;
  Dims step_{};   // elements of a piece
  Dims parts_{};  // pieces along each dimension
  int64_t count_ = 1, next_ = 0;
};

}  // namespace oocdnn
