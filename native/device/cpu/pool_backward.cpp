// Each element of dy gathers from the windows that have it, so that no two threads add to one.
#include "device/cpu/pool_backward.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.hpp"
#include "device/cpu/convert.hpp"
#include "device/cpu/tile_rows.hpp"

namespace oocdnn::cpu {
namespace {

// The windows along one axis that have a row of dy: their rows in the tile of dz, and the place of
// the row in the first of them; it is `stride` less in each that follows.
struct Windows1 {
  int64_t begin = 0, end = 0, place = 0;
};

Windows1 WindowsOf(const PoolBackwardArgs& args, int axis, int64_t row) {
  const Pool& pool = args.pool;
  const Box& box = args.box;
  const int64_t y = box.origin[3 + axis] + row;
  if (y < box.valid_begin[3 + axis] || y >= box.valid_end[3 + axis]) return {};
  const int64_t at = y + pool.pad_before[axis];
  const int64_t first =
      std::max<int64_t>(FloorDiv(at - pool.window[axis], pool.stride[axis]) + 1, 0);
  const int64_t end = std::min(at / pool.stride[axis] + 1, pool.OutExtent(axis, args.extent[axis]));
  const int64_t origin = args.z_origin[axis];
  return {first - origin, end - origin, at - first * pool.stride[axis]};
}

// The number of elements along an axis that the average of window `z` divides by.
int64_t CountedAt(const PoolBackwardArgs& args, int axis, int64_t z) {
  const Pool& pool = args.pool;
  const int64_t extent = args.extent[axis];
  const int64_t first = (args.z_origin[axis] + z) * pool.stride[axis] - pool.pad_before[axis];
  const int64_t last = first + pool.window[axis];
  if (pool.mode == PoolMode::kAverage) return std::min(last, extent + pool.pad_after[axis]) - first;
  return std::min(last, extent) - std::max<int64_t>(first, 0);
}

std::vector<Windows1> WindowsAlong(const PoolBackwardArgs& args, int axis) {
  std::vector<Windows1> windows;
  windows.reserve(static_cast<size_t>(args.layout->shape[3 + axis]));
  for (int64_t row = 0; row < args.layout->shape[3 + axis]; ++row) {
    windows.push_back(WindowsOf(args, axis, row));
  }
  return windows;
}

// Rows of one tile, from dz as `From`; kSlopes: slopes are saved.
template <class From, bool kSlopes>
class Restoring {
 public:
  using T = std::conditional_t<std::is_same_v<From, double>, double, float>;

  explicit Restoring(const PoolBackwardArgs& args) : args_(args) {
    for (int s = 0; s < 3; ++s) windows_[s] = WindowsAlong(args, s);
  }

  template <class To>
  void Row(int64_t n, int64_t channel, int64_t d, int64_t h) const {
    const TileLayout& layout = *args_.layout;
    To* const to = static_cast<To*>(args_.dy) + RowAt(layout, n, channel, d, h);
    for (int64_t w = 0; w < layout.shape[5]; ++w) {
      T value = Alive(n, channel, d, h, w) ? Sum(n, channel, d, h, w) : T(0);
      if (kSlopes && args_.saving.what == Saved::kAlive && value != T(0)) {
        value *= Slope(Element(n, channel, d, h, w));
      }
      to[w * layout.stride[5]] = Convert<To>(value);
    }
  }

 private:
  [[nodiscard]] const Windows1& At(int axis, int64_t row) const {
    return windows_[axis][static_cast<size_t>(row)];
  }

  [[nodiscard]] const uint8_t* SavedRow(int64_t n, int64_t channel, int64_t d, int64_t h) const {
    return static_cast<const uint8_t*>(args_.saved.data) +
           RowAt(*args_.saved.layout, n, channel, d, h);
  }

  // Elements that no window has may have no bits.
  [[nodiscard]] bool Alive(int64_t n, int64_t channel, int64_t d, int64_t h, int64_t w) const {
    const Windows1 &a = At(0, d), &b = At(1, h), &c = At(2, w);
    if (a.begin >= a.end || b.begin >= b.end || c.begin >= c.end) return false;
    if (kSlopes || args_.saving.what != Saved::kAlive) return true;
    return BitsAt(SavedRow(n, channel, RowOfY(0, d), RowOfY(1, h)), RowOfY(2, w), 1) != 0;
  }

  // The place of a row of dy's tile in that of what is saved of it.
  [[nodiscard]] int64_t RowOfY(int axis, int64_t row) const {
    return args_.box.origin[3 + axis] + row - args_.saved_origin[axis];
  }

  // Address of the saved bytes of an element of dy: its slope first, then its place in the window.
  [[nodiscard]] const uint8_t* Element(int64_t n, int64_t channel, int64_t d, int64_t h,
                                       int64_t w) const {
    return SavedRow(n, channel, RowOfY(0, d), RowOfY(1, h)) + RowOfY(2, w) * args_.saving.bits / 8;
  }

  // Slopes are of dz's type.
  [[nodiscard]] static T Slope(const uint8_t* element) {
    return Convert<T>(SlopeAt<From>(element));
  }

  [[nodiscard]] T Sum(int64_t n, int64_t channel, int64_t d, int64_t h, int64_t w) const {
    const Pool& pool = args_.pool;
    const Windows1 &a = At(0, d), &b = At(1, h), &c = At(2, w);
    T sum = 0;
    for (int64_t zd = a.begin; zd < a.end; ++zd) {
      const int64_t in_d = a.place - (zd - a.begin) * pool.stride[0];
      for (int64_t zh = b.begin; zh < b.end; ++zh) {
        const int64_t in_h = b.place - (zh - b.begin) * pool.stride[1];
        const int64_t in_row = (in_d * pool.window[1] + in_h) * pool.window[2];
        sum += pool.mode == PoolMode::kMax || !pool.pools() ? Won(n, channel, zd, zh, c, in_row)
                                                            : Shared(n, channel, zd, zh, c);
      }
    }
    return sum;
  }

  [[nodiscard]] const From* Dz(int64_t n, int64_t channel, int64_t d, int64_t h) const {
    return static_cast<const From*>(args_.z.data) + RowAt(*args_.z.layout, n, channel, d, h);
  }

  // From one row of windows of maxima. `in_row`: of the row's first place.
  [[nodiscard]] T Won(int64_t n, int64_t channel, int64_t d, int64_t h, const Windows1& w,
                      int64_t in_row) const {
    const From* const dz = Dz(n, channel, d, h);
    const bool chosen = args_.saving.what == Saved::kWinners;
    const uint8_t* const bits =
        chosen ? SavedRow(n, channel, SavedAt(0, d), SavedAt(1, h)) : nullptr;
    T sum = 0;
    for (int64_t z = w.begin; z < w.end; ++z) {
      const int64_t place = in_row + w.place - (z - w.begin) * args_.pool.stride[2];
      if (chosen && Winner(bits, z) != place) continue;
      const T value = Convert<T>(dz[z * args_.z.layout->stride[5]]);
      sum += kSlopes && chosen ? value * Slope(ElementAt(bits, z)) : value;
    }
    return sum;
  }

  // What is saved of element `z` of a row of dz, with its slope; and the place of its winner.
  [[nodiscard]] const uint8_t* ElementAt(const uint8_t* row, int64_t z) const {
    return row + SavedAt(2, z) * args_.saving.bits / 8;
  }
  [[nodiscard]] uint32_t Winner(const uint8_t* row, int64_t z) const {
    if (kSlopes) return CodeAt(ElementAt(row, z), args_.saving);
    return BitsAt(row, SavedAt(2, z), args_.saving.bits);
  }

  // The place of a row of dz's tile in that of its bits.
  [[nodiscard]] int64_t SavedAt(int axis, int64_t z) const {
    return args_.z_origin[axis] + z - args_.saved_origin[axis];
  }

  // From one row of windows of averages.
  [[nodiscard]] T Shared(int64_t n, int64_t channel, int64_t d, int64_t h,
                         const Windows1& w) const {
    const From* const dz = Dz(n, channel, d, h);
    const int64_t counted = CountedAt(args_, 0, d) * CountedAt(args_, 1, h);
    T sum = 0;
    for (int64_t z = w.begin; z < w.end; ++z) {
      const auto all = static_cast<T>(counted * CountedAt(args_, 2, z));
      sum += Convert<T>(dz[z * args_.z.layout->stride[5]]) / all;
    }
    return sum;
  }

  const PoolBackwardArgs& args_;
  std::array<std::vector<Windows1>, 3> windows_;
};

template <class From, bool kSlopes>
void PoolBackwardRows(const PoolBackwardArgs& args, Parallel& parallel) {
  const Restoring<From, kSlopes> restoring(args);
  WithType(args.layout->dtype, [&](auto to) {
    ForRows(args.layout->shape, parallel, [&](int64_t n, int64_t channel, int64_t d, int64_t h) {
      restoring.template Row<decltype(to)>(n, channel, d, h);
    });
  });
}

}  // namespace

Status PoolBackwardTile(const PoolBackwardArgs& args, Parallel& parallel) {
  const TileLayout& layout = *args.layout;
  if (layout.opaque) {
    return Error(Code::kUnsupported, "a tile of dy whose layout is opaque cannot be restored");
  }
  if (layout.channel_block > 1) std::memset(args.dy, 0, static_cast<size_t>(layout.bytes));
  WithType(args.z.layout->dtype, [&](auto from) {
    using From = decltype(from);
    if (args.saving.slopes()) {
      PoolBackwardRows<From, true>(args, parallel);
    } else {
      PoolBackwardRows<From, false>(args, parallel);
    }
  });
  return {};
}

}  // namespace oocdnn::cpu
