// C functions for boxes of tensors in host memory: the pieces that they are cut into, and their
// copies.
#include "exec/cut.hpp"
#include "exec/host_copy.hpp"
#include "testing/export.hpp"

namespace oocdnn::testing {
namespace {

Dims DimsAt(const int64_t* numbers) {
  Dims dims;
  std::copy_n(numbers, dims.size(), dims.begin());
  return dims;
}

}  // namespace

// The pieces of at most `most` elements of the box [begin, end) of a tensor with these strides:
// `pieces` gets the first `room` of them, each its begin and its end. Returns how many there are.
OOC_EXPORT int64_t oocdnn_testing_cut(const int64_t* stride, const int64_t* begin,
                                      const int64_t* end, const int64_t* most, int64_t* pieces,
                                      int64_t room) {
  Packing packing;
  packing.stride = DimsAt(stride);
  Cut cut(packing, {DimsAt(begin), DimsAt(end)}, DimsAt(most));
  Piece piece;
  for (int64_t i = 0; i < room && cut.Next(&piece); ++i) {
    pieces = std::copy(piece.begin.begin(), piece.begin.end(), pieces);
    pieces = std::copy(piece.end.begin(), piece.end.end(), pieces);
  }
  return cut.count();
}

// Copies the box of f32 to `memory`, or from there where `unpacks`, by so many threads. Returns the
// bytes of the packed box; without `memory` nothing else is done.
OOC_EXPORT int64_t oocdnn_testing_copy_box(int threads, const int64_t* stride, const int64_t* begin,
                                           const int64_t* end, void* data, void* memory,
                                           int unpacks) {
  const Dims first = DimsAt(begin), last = DimsAt(end);
  Dims extent;
  for (size_t d = 0; d < extent.size(); ++d) extent[d] = last[d] - first[d];
  const Packing packing = PackingOf(DType::kFloat32, DimsAt(stride), extent);
  if (memory != nullptr) {
    CopyTeam team(threads);
    if (unpacks != 0) {
      UnpackBox(team, data, packing, first, last, memory);
    } else {
      PackBox(team, data, packing, first, last, memory, false);
    }
  }
  return PackedLayout(packing, extent).bytes;
}

}  // namespace oocdnn::testing
