// Brings a copy into its simplest form (few dimensions, fastest last), then runs one of three
// kernels over its last two dimensions: runs of neighbours, a transpose in blocks, or any strides.
#include "device/cpu/strided.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "device/cpu/convert_run.hpp"
#include "device/cpu/transpose.hpp"

namespace oocdnn::cpu {
namespace {

// Elements that one piece of parallel work moves: enough to outweigh handing it out.
constexpr int64_t kPiece = 32768;

struct Form {
  int count = 0;
  std::array<StridedDim, kStridedDims> dim{};

  void Insert(const StridedDim& added) { dim[static_cast<size_t>(count++)] = added; }
};

int64_t Magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

// Dimensions of extent 1 dropped, the others by falling stride in the destination, and neighbours
// that are one run in both arrays joined. The dimension `pinned` comes last and stays unjoined.
Form Simplify(const std::array<StridedDim, kStridedDims>& dims, int pinned) {
  Form sorted;
  for (int d = 0; d < kStridedDims; ++d) {
    if (d != pinned && dims[d].extent != 1) sorted.Insert(dims[d]);
  }
  std::stable_sort(
      sorted.dim.begin(), sorted.dim.begin() + sorted.count,
      [](const StridedDim& a, const StridedDim& b) { return Magnitude(a.to) > Magnitude(b.to); });
  Form joined;
  for (int d = 0; d < sorted.count; ++d) {
    const StridedDim& next = sorted.dim[d];
    StridedDim* last = joined.count > 0 ? &joined.dim[joined.count - 1] : nullptr;
    if (last != nullptr && last->from == next.from * next.extent &&
        last->to == next.to * next.extent) {
      *last = {last->extent * next.extent, next.from, next.to};
    } else {
      joined.Insert(next);
    }
  }
  if (pinned >= 0) joined.Insert(dims[pinned]);
  return joined;
}

// The last two dimensions of a form, and how they are cut into pieces.
struct Plane {
  StridedDim row, col;
  int64_t row_step = 1, col_step = 1;

  void Cut(int64_t multiple) {
    col_step = std::min(col.extent, kPiece);
    row_step = std::max<int64_t>(kPiece / col_step, 1);
    col_step = RoundUp(col_step, multiple);
    row_step = RoundUp(std::min(row_step, row.extent), multiple);
  }
  [[nodiscard]] int64_t Pieces() const {
    return CeilDiv(row.extent, row_step) * CeilDiv(col.extent, col_step);
  }
};

struct Part {
  int64_t row_begin, row_end, col_begin, col_end;
};

// Calls fn(source offset, destination offset, part of the plane) for all of a form, in parallel.
template <class Fn>
void Walk(const Form& form, const Plane& plane, Parallel& parallel, const Fn& fn) {
  int64_t outer = 1;
  for (int d = 0; d < form.count; ++d) outer *= form.dim[d].extent;
  const int64_t pieces = plane.Pieces();
  const int64_t each =
      std::min(plane.row_step, plane.row.extent) * std::min(plane.col_step, plane.col.extent);
  const int64_t col_pieces = CeilDiv(plane.col.extent, plane.col_step);
  parallel.For(outer * pieces, std::max<int64_t>(kPiece / std::max<int64_t>(each, 1), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   int64_t rest = item / pieces, from = 0, to = 0;
                   for (int d = form.count - 1; d >= 0; --d) {
                     const int64_t index = rest % form.dim[d].extent;
                     rest /= form.dim[d].extent;
                     from += index * form.dim[d].from;
                     to += index * form.dim[d].to;
                   }
                   const int64_t row = item % pieces / col_pieces * plane.row_step;
                   const int64_t col = item % col_pieces * plane.col_step;
                   fn(from, to,
                      Part{row, std::min(row + plane.row_step, plane.row.extent), col,
                           std::min(col + plane.col_step, plane.col.extent)});
                 }
               });
}

// Zeros before the first and behind the last element of a padded row, where the part holds them.
template <class To>
void Pad(const StridedCopy& copy, const Plane& plane, const Part& part, To* row) {
  if (copy.head > 0 && part.col_begin == 0) {
    std::memset(row - copy.head, 0, static_cast<size_t>(copy.head) * sizeof(To));
  }
  if (copy.tail > 0 && part.col_end == plane.col.extent) {
    std::memset(row + plane.col.extent, 0, static_cast<size_t>(copy.tail) * sizeof(To));
  }
}

template <class From, class To>
void CopyRows(const StridedCopy& copy, const Plane& plane, const From* from, To* to,
              const Part& part) {
  const int64_t count = part.col_end - part.col_begin;
  for (int64_t r = part.row_begin; r < part.row_end; ++r) {
    const From* const source = from + r * plane.row.from + part.col_begin * plane.col.from;
    To* const row = to + r * plane.row.to;
    Pad(copy, plane, part, row);
    if (plane.col.from == 1 && plane.col.to == 1) {
      ConvertRun(source, row + part.col_begin, count);
      continue;
    }
    To* const target = row + part.col_begin * plane.col.to;
    for (int64_t i = 0; i < count; ++i) {
      target[i * plane.col.to] = Convert<To>(source[i * plane.col.from]);
    }
  }
}

// A strip of rows at a time: long enough that each line of the source is followed by its
// neighbours, short enough that the destination's lines wait in the first cache until they are
// full.
constexpr int64_t kStrip = 4 * kTransposeBlock;

template <class From, class To>
void CopyTransposed(const StridedCopy& copy, const Plane& plane, const From* from, To* to,
                    const Part& part) {
  for (int64_t strip = part.row_begin; strip < part.row_end; strip += kStrip) {
    const int64_t strip_end = std::min(strip + kStrip, part.row_end);
    for (int64_t c = part.col_begin; c < part.col_end; c += kTransposeBlock) {
      const int64_t cols = std::min(kTransposeBlock, part.col_end - c);
      for (int64_t r = strip; r < strip_end; r += kTransposeBlock) {
        const int64_t rows = std::min(kTransposeBlock, strip_end - r);
        TransposeBlock(from + r + c * plane.col.from, plane.col.from, to + r * plane.row.to + c,
                       plane.row.to, rows, cols);
      }
    }
    for (int64_t r = strip; r < strip_end; ++r) Pad(copy, plane, part, to + r * plane.row.to);
  }
}

// Takes the dimension that becomes the plane's rows out of `form`: where the last dimension is a
// run in the destination only, the run of the source if there is one (a transpose), else the next.
Plane TakePlane(Form* form, bool* transpose) {
  Plane plane;
  if (form->count == 0) return plane;
  plane.col = form->dim[--form->count];
  int chosen = form->count - 1;
  *transpose = false;
  for (int d = 0; d < form->count && plane.col.to == 1 && plane.col.from != 1; ++d) {
    if (form->dim[d].from != 1) continue;
    chosen = d;
    *transpose = true;
  }
  if (chosen >= 0) {
    plane.row = form->dim[chosen];
    for (int d = chosen; d + 1 < form->count; ++d) form->dim[d] = form->dim[d + 1];
    --form->count;
  }
  return plane;
}

template <class From, class To>
void CopyTyped(const StridedCopy& copy, Parallel& parallel) {
  Form form = Simplify(copy.dim, copy.pad_dim);
  bool transpose = false;
  Plane plane = TakePlane(&form, &transpose);
  plane.Cut(transpose ? kTransposeBlock : 1);
  const auto* const from = static_cast<const From*>(copy.from);
  auto* const to = static_cast<To*>(copy.to);
  Walk(form, plane, parallel, [&](int64_t source, int64_t target, const Part& part) {
    if (transpose) {
      CopyTransposed(copy, plane, from + source, to + target, part);
    } else {
      CopyRows(copy, plane, from + source, to + target, part);
    }
  });
}

bool IsEmpty(const std::array<StridedDim, kStridedDims>& dims) {
  return std::any_of(dims.begin(), dims.end(),
                     [](const StridedDim& dim) { return dim.extent <= 0; });
}

template <class To>
void ZeroTyped(const StridedZero& zero, Parallel& parallel) {
  auto dims = zero.dim;
  for (StridedDim& dim : dims) dim.from = dim.to;
  Form form = Simplify(dims, -1);
  bool transpose = false;
  Plane plane = TakePlane(&form, &transpose);
  plane.Cut(1);
  Walk(form, plane, parallel, [&](int64_t, int64_t target, const Part& part) {
    for (int64_t r = part.row_begin; r < part.row_end; ++r) {
      To* const row = static_cast<To*>(zero.to) + target + r * plane.row.to;
      if (plane.col.to == 1) {
        std::memset(row + part.col_begin, 0,
                    static_cast<size_t>(part.col_end - part.col_begin) * sizeof(To));
        continue;
      }
      for (int64_t c = part.col_begin; c < part.col_end; ++c) row[c * plane.col.to] = To{};
    }
  });
}

}  // namespace

void Copy(const StridedCopy& copy, Parallel& parallel) {
  if (IsEmpty(copy.dim)) return;
  if (copy.from_type == DType::kByte) return CopyTyped<uint8_t, uint8_t>(copy, parallel);
  WithType(copy.from_type, [&](auto from) {
    WithType(copy.to_type,
             [&](auto to) { CopyTyped<decltype(from), decltype(to)>(copy, parallel); });
  });
}

void Zero(const StridedZero& zero, Parallel& parallel) {
  if (IsEmpty(zero.dim)) return;
  if (zero.type == DType::kByte) return ZeroTyped<uint8_t>(zero, parallel);
  WithType(zero.type, [&](auto to) { ZeroTyped<decltype(to)>(zero, parallel); });
}

}  // namespace oocdnn::cpu
