// One row along W at a time.
#include "device/cpu/pool_forward.hpp"

#include <algorithm>
#include <cmath>

#include "device/cpu/convert.hpp"
#include "device/cpu/finish.hpp"
#include "device/cpu/tile_rows.hpp"

namespace oocdnn::cpu {
namespace {

// A window along one axis: the rows of the tile that it has, the place in the window of the first
// of them, and how many of its places an average counts.
struct Span1 {
  int64_t begin = 0, end = 0, place = 0, counted = 0;
};

Span1 WindowAt(const PoolOutput& made, int axis, int64_t z) {
  const Pool& pool = made.pool;
  const int64_t first = (made.z_origin[axis] + z) * pool.stride[axis] - pool.pad_before[axis];
  const int64_t last = first + pool.window[axis];
  const int64_t begin = std::max<int64_t>(first, 0), end = std::min(last, made.extent[axis]);
  Span1 span{begin - made.y_origin[axis], end - made.y_origin[axis], begin - first, end - begin};
  if (pool.mode == PoolMode::kAverage) {
    span.counted = std::min(last, made.extent[axis] + pool.pad_after[axis]) - first;
  }
  return span;
}

// Whether a gradient passes the activation where its result is `v`.
template <class T>
bool Alive(const Epilogue& epilogue, T v) {
  switch (epilogue.activation) {
    case Activation::kRelu: return !(v <= T(0));
    case Activation::kClippedRelu:
      return !(v <= T(0)) && !(v >= static_cast<T>(epilogue.parameter));
    default: return true;
  }
}

template <class T>
struct Pooled {
  T value = 0;
  uint32_t bits = 0;
  T slope = 0;
};

template <class T>
T Activated(const Epilogue& epilogue, T v) {
  return Activate(epilogue.activation, static_cast<T>(epilogue.parameter), v);
}

template <class T>
T SlopeAt(const Epilogue& epilogue, T u) {
  return SlopeOf(epilogue.activation, static_cast<T>(epilogue.parameter), u);
}

// One window. `row`: of the tile's first row on that the window's rows are counted from. kSlopes:
// the tile's values are still to be activated.
template <class T, bool kSlopes>
class Windows {
 public:
  Windows(const FinishArgs& args, int64_t d, int64_t h)
      : made_(args.pooled),
        epilogue_(args.epilogue),
        stride_(args.layout->stride),
        d_(WindowAt(args.pooled, 0, d)),
        h_(WindowAt(args.pooled, 1, h)) {}

  Pooled<T> At(const T* channel, int64_t w) const {
    const Span1 span = WindowAt(made_, 2, w);
    return made_.pool.mode == PoolMode::kMax ? Largest(channel, span) : Average(channel, span);
  }

 private:
  template <class Fn>
  void ForEach(const T* channel, const Span1& w, const Fn& fn) const {
    const Spatial& window = made_.pool.window;
    for (int64_t d = d_.begin; d < d_.end; ++d) {
      for (int64_t h = h_.begin; h < h_.end; ++h) {
        const T* const row = channel + d * stride_[3] + h * stride_[4];
        const int64_t place =
            ((d - d_.begin + d_.place) * window[1] + h - h_.begin + h_.place) * window[2];
        for (int64_t i = w.begin; i < w.end; ++i) {
          fn(row[i * stride_[5]], place + i - w.begin + w.place);
        }
      }
    }
  }

  Pooled<T> Largest(const T* channel, const Span1& w) const {
    int64_t winner = -1;
    T best = 0, sum = 0;
    ForEach(channel, w, [&](T u, int64_t place) {
      const T v = kSlopes ? Activated(epilogue_, u) : u;
      if (winner >= 0 && !(v > best) && !(std::isnan(v) && !std::isnan(best))) return;
      best = v;
      sum = u;
      winner = place;
    });
    if (!Alive(epilogue_, best)) winner = made_.pool.Elements();
    const auto code = static_cast<uint32_t>(std::max<int64_t>(winner, 0));
    return {best, code, kSlopes && winner >= 0 ? SlopeAt(epilogue_, sum) : T(0)};
  }

  Pooled<T> Average(const T* channel, const Span1& w) const {
    T sum = 0;
    ForEach(channel, w, [&](T v, int64_t) { sum += v; });
    const int64_t counted = d_.counted * h_.counted * w.counted;
    return {counted > 0 ? sum / static_cast<T>(counted) : T(0)};
  }

  const PoolOutput& made_;
  const Epilogue& epilogue_;
  const Dims& stride_;
  Span1 d_, h_;
};

uint8_t* SavedRow(const PooledTile& saved, int64_t n, int64_t channel, int64_t d, int64_t h) {
  return static_cast<uint8_t*>(saved.data) + RowAt(*saved.layout, n, channel, d, h);
}

// A row of z that is made of windows of one element, and zeros behind those that there are.
template <class T, class Stored>
class SingleElements {
 public:
  explicit SingleElements(const FinishArgs& args) : made_(args.pooled), y_(*args.layout) {}

  // Whether that is what these windows are. An average is not, for the sign of a zero.
  [[nodiscard]] bool Serve() const {
    return made_.pool.mode == PoolMode::kMax && made_.pool.Elements() == 1 &&
           made_.saving.what != Saved::kWinners;
  }

  void Take(const T* channel, int64_t d, int64_t h, int64_t count, Stored* z) const {
    const TileLayout& layout = *made_.z.layout;
    const int64_t step = layout.stride[5], from = made_.pool.stride[2] * y_.stride[5];
    if (count > 0) channel += At(0, d) * y_.stride[3] + At(1, h) * y_.stride[4];
    if (count > 0) channel += At(2, 0) * y_.stride[5];
    if (step == 1 && from == 1) {
      std::transform(channel, channel + count, z, [](T v) { return Convert<Stored>(v); });
    } else {
      for (int64_t w = 0; w < count; ++w) z[w * step] = Convert<Stored>(channel[w * from]);
    }
    for (int64_t w = count; w < layout.shape[5]; ++w) z[w * step] = Convert<Stored>(T(0));
  }

 private:
  [[nodiscard]] int64_t At(int axis, int64_t z) const {
    return (made_.z_origin[axis] + z) * made_.pool.stride[axis] - made_.y_origin[axis];
  }

  const PoolOutput& made_;
  const TileLayout& y_;
};

// Rows of z, and of winners. Those behind the last of the tensor hold zeros, as their bits may
// share a byte with the last.
template <class T, class Stored, bool kSlopes>
void PoolRows(const FinishArgs& args, Parallel& parallel) {
  const PoolOutput& made = args.pooled;
  const TileLayout& layout = *made.z.layout;
  Spatial rows;
  for (int s = 0; s < 3; ++s) {
    rows[s] = made.pool.OutExtent(s, made.extent[s]) - made.z_origin[s];
  }
  const bool winners = made.saving.what == Saved::kWinners;
  const SingleElements<T, Stored> single(args);
  ForRows(layout.shape, parallel, [&](int64_t n, int64_t channel, int64_t d, int64_t h) {
    const T* const y = static_cast<const T*>(args.out) + RowAt(*args.layout, n, channel, 0, 0);
    Stored* const z = static_cast<Stored*>(made.z.data) + RowAt(layout, n, channel, d, h);
    const bool there = d < rows[0] && h < rows[1] && rows[2] > 0;
    const int64_t some = there ? std::min(rows[2], layout.shape[5]) : 0;
    if (single.Serve()) return single.Take(y, d, h, some, z);
    uint8_t* const saved = winners ? SavedRow(made.saved, n, channel, d, h) : nullptr;
    BitRow bits(kSlopes ? nullptr : saved, made.saving.bits);
    SlopeRow slopes(saved, made.saving);
    const Windows<T, kSlopes> windows(args, d, h);
    for (int64_t w = 0; w < layout.shape[5]; ++w) {
      const Pooled<T> pooled = w < some ? windows.At(y, w) : Pooled<T>{};
      z[w * layout.stride[5]] = Convert<Stored>(pooled.value);
      if (kSlopes) slopes.Put(pooled.slope, pooled.bits);
      if (!kSlopes) bits.Put(pooled.bits);
    }
    bits.End();
  });
}

// Rows of bits of y. Those of elements that no window reaches, or behind the last, are zero.
template <class T>
void AliveRows(const FinishArgs& args, Parallel& parallel) {
  const PoolOutput& made = args.pooled;
  const TileLayout& y = *args.layout;
  const int64_t origin = made.y_origin[2];
  const int64_t end = made.pool.RowsReached(2, made.extent[2]);
  ForRows(made.saved.layout->shape, parallel,
          [&](int64_t n, int64_t channel, int64_t d, int64_t h) {
            const T* const row = static_cast<const T*>(args.out) + RowAt(y, n, channel, d, h);
            BitRow bits(SavedRow(made.saved, n, channel, d, h), made.saving.bits);
            const int64_t count = std::min(made.saved.layout->shape[5] * kSavedUnit, y.shape[5]);
            for (int64_t w = 0; w < count; ++w) {
              const bool there = origin + w >= 0 && origin + w < end;
              bits.Put(there && Alive(args.epilogue, row[w * y.stride[5]]) ? 1 : 0);
            }
            bits.End();
          });
}

// Rows of slopes of y, from sums that are still to be activated; zeros where AliveRows has them.
template <class T>
void SlopeRows(const FinishArgs& args, Parallel& parallel) {
  const PoolOutput& made = args.pooled;
  const TileLayout& y = *args.layout;
  const int64_t origin = made.y_origin[2], elements = made.saved.layout->shape[5] * 8;
  const int64_t end = made.pool.RowsReached(2, made.extent[2]);
  ForRows(made.saved.layout->shape, parallel,
          [&](int64_t n, int64_t channel, int64_t d, int64_t h) {
            const T* const row = static_cast<const T*>(args.out) + RowAt(y, n, channel, d, h);
            SlopeRow slopes(SavedRow(made.saved, n, channel, d, h), made.saving);
            for (int64_t w = 0; w < elements / made.saving.bits; ++w) {
              const bool there = w < y.shape[5] && origin + w >= 0 && origin + w < end;
              slopes.Put(there ? SlopeAt(args.epilogue, row[w * y.stride[5]]) : T(0), 0);
            }
          });
}

template <class T, bool kSlopes>
void PoolForwardPooled(const FinishArgs& args, Parallel& parallel) {
  if constexpr (std::is_same_v<T, double>) {
    PoolRows<double, double, kSlopes>(args, parallel);
  } else {
    WithType(args.pooled.z.layout->dtype,
             [&](auto stored) { PoolRows<float, decltype(stored), kSlopes>(args, parallel); });
  }
}

template <class T>
void Make(const FinishArgs& args, Parallel& parallel) {
  const PoolOutput& made = args.pooled;
  if (made.saving.what == Saved::kAlive) AliveRows<T>(args, parallel);
  if (made.z.data != nullptr) PoolForwardPooled<T, false>(args, parallel);
}

// From sums that are finished but for the activation. A maximum's windows activate them as they
// read them; otherwise that is done in place, once the slopes are taken.
template <class T>
Status PoolForwardSloped(const FinishArgs& args, Parallel& parallel) {
  if (args.pooled.saving.what == Saved::kWinners) {
    PoolForwardPooled<T, true>(args, parallel);
    return {};
  }
  SlopeRows<T>(args, parallel);
  FinishArgs rest;
  rest.out = args.out;
  rest.layout = args.layout;
  rest.epilogue.activation = args.epilogue.activation;
  rest.epilogue.parameter = args.epilogue.parameter;
  OOC_TRY(FinishTile(rest, parallel));
  if (args.pooled.z.data != nullptr) PoolForwardPooled<T, false>(args, parallel);
  return {};
}

template <class T>
Status FinishSums(const FinishArgs& args, Parallel& parallel) {
  if (args.pooled.saving.slopes()) {
    FinishArgs sums = args;
    sums.epilogue.activation = Activation::kIdentity;
    OOC_TRY(FinishTile(sums, parallel));
    return PoolForwardSloped<T>(args, parallel);
  }
  OOC_TRY(FinishTile(args, parallel));
  Make<T>(args, parallel);
  return {};
}

}  // namespace

Status FinishAndPool(const FinishArgs& args, Parallel& parallel) {
  if (!args.pooled.any()) return FinishTile(args, parallel);
  switch (args.layout->dtype) {
    case DType::kFloat64: return FinishSums<double>(args, parallel);
    case DType::kFloat32: return FinishSums<float>(args, parallel);
    default: break;
  }
  return Error(Code::kUnsupported, "sums that are pooled or saved of are f32 or f64, not %s",
               Name(args.layout->dtype));
}

}  // namespace oocdnn::cpu
