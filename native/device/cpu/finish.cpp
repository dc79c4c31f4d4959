// Walks the output tile in rows of neighbours and applies the epilogue to short runs of them, one
// operation after the other, so that each is a simple loop over data in the first cache.
#include "device/cpu/finish.hpp"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/convert.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kRun = 256;
constexpr int64_t kPiece = 32768;

// The tile as rows: `dim` are the outer dimensions, a row has `length` elements `step` apart. The
// channel of an element is the sum of its indices times the channel strides.
struct Dimension {
  int64_t extent = 1, stride = 0, channel = 0;
};
struct Rows {
  std::array<Dimension, 5> dim{};
  int64_t length = 0, step = 1, channel_step = 0;
  int64_t channel_block = 1, channels = 0;  // a row of a blocked layout ends at `channels`
};

Rows OpaqueRows(const TileLayout& layout) {
  Rows rows;
  rows.dim[0].extent = 1;
  rows.length = layout.bytes / SizeOf(layout.dtype);
  rows.channels = 1;
  return rows;
}

Rows BlockedRows(const TileLayout& layout) {
  Rows rows;
  rows.channel_block = layout.channel_block;
  rows.channels = layout.shape[1] * layout.shape[2];
  rows.dim[0] = {layout.shape[0], layout.stride[0], 0};
  rows.dim[1] = {CeilDiv(rows.channels, layout.channel_block), layout.stride[2],
                 layout.channel_block};
  for (int d = 3; d < 6; ++d) rows.dim[d - 1] = {layout.shape[d], layout.stride[d], 0};
  rows.length = layout.channel_block;
  rows.channel_step = 1;
  return rows;
}

Rows PlainRows(const TileLayout& layout) {
  std::array<Dimension, 6> dims;
  for (int d = 0; d < 6; ++d) dims[d] = {layout.shape[d], layout.stride[d], 0};
  dims[1].channel = layout.shape[2];
  dims[2].channel = 1;
  // The row is the dimension with the closest neighbours; what continues it is joined to it.
  const auto distance = [](const Dimension& dim) {
    return dim.extent == 1 ? kSizeMax : dim.stride;
  };
  std::sort(dims.begin(), dims.end(),
            [&](const Dimension& a, const Dimension& b) { return distance(a) > distance(b); });
  Rows rows;
  Dimension row = dims[5];
  for (int d = 0; d < 5; ++d) rows.dim[d] = dims[d];
  for (int d = 4; d >= 0; --d) {
    Dimension& next = rows.dim[d];
    if (next.extent != 1 &&
        (next.stride != row.stride * row.extent || next.channel != row.channel * row.extent)) {
      break;
    }
    row.extent *= next.extent;
    next = {};
  }
  rows.length = row.extent;
  rows.step = row.extent == 1 ? 1 : row.stride;
  rows.channel_step = row.channel;
  rows.channels = layout.shape[1] * layout.shape[2];
  return rows;
}

// One run of at most kRun elements: `at` elements into the tile, from `channel` on.
struct Run {
  int64_t at, channel, count;
};

template <class Stored, class T>
void Load(const void* tile, const Rows& rows, const Run& run, T* values) {
  const auto* from = static_cast<const Stored*>(tile) + run.at;
  for (int64_t i = 0; i < run.count; ++i) {
    values[i] = static_cast<T>(Widen(from[i * rows.step]));
  }
}

template <class Stored, class T>
void Store(const T* values, const Rows& rows, const Run& run, void* tile) {
  auto* to = static_cast<Stored*>(tile) + run.at;
  for (int64_t i = 0; i < run.count; ++i) to[i * rows.step] = Convert<Stored>(values[i]);
}

template <class Stored, class T>
void AddScaled(const void* tile, double factor, const Rows& rows, const Run& run, T* values) {
  T other[kRun];
  Load<Stored>(tile, rows, run, other);
  for (int64_t i = 0; i < run.count; ++i) values[i] += static_cast<T>(factor) * other[i];
}

template <class Stored, class T>
void FinishRun(const FinishArgs& args, const Rows& rows, const Run& run) {
  T v[kRun];
  Load<Stored>(args.out, rows, run, v);
  const auto alpha = static_cast<T>(args.alpha);
  const auto* const scale = static_cast<const T*>(args.scale);
  const auto* const bias = static_cast<const T*>(args.bias);
  const int64_t step = rows.channel_step;
  for (int64_t i = 0; i < run.count; ++i) v[i] *= alpha;
  if (args.epilogue.scale) {
    for (int64_t i = 0; i < run.count; ++i) v[i] *= scale[run.channel + i * step];
  }
  if (args.epilogue.bias) {
    for (int64_t i = 0; i < run.count; ++i) v[i] += bias[run.channel + i * step];
  }
  if (args.epilogue.residual) {
    AddScaled<Stored>(args.residual, args.epilogue.residual_alpha, rows, run, v);
  }
  if (args.beta != 0.0) AddScaled<Stored>(args.old, args.beta, rows, run, v);
  ActivateAll(args.epilogue.activation, static_cast<T>(args.epilogue.parameter), v, run.count);
  Store<Stored>(v, rows, run, args.out);
}

template <class Stored, class T>
void FinishRows(const FinishArgs& args, const Rows& rows, Parallel& parallel) {
  int64_t count = 1;
  for (const Dimension& dim : rows.dim) count *= dim.extent;
  const int64_t runs = CeilDiv(rows.length, kRun);
  const int64_t grain = std::max<int64_t>(kPiece / std::clamp<int64_t>(rows.length, 1, kRun), 1);
  parallel.For(count * runs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t rest = item / runs;
      const int64_t first = item % runs * kRun;
      Run run{first * rows.step, first * rows.channel_step, std::min(kRun, rows.length - first)};
      for (int d = 4; d >= 0; --d) {
        const int64_t index = rest % rows.dim[d].extent;
        rest /= rows.dim[d].extent;
        run.at += index * rows.dim[d].stride;
        run.channel += index * rows.dim[d].channel;
      }
      if (rows.channel_block > 1) run.count = std::min(run.count, rows.channels - run.channel);
      FinishRun<Stored, T>(args, rows, run);
    }
  });
}

}  // namespace

Status FinishTile(const FinishArgs& args, Parallel& parallel) {
  const TileLayout& layout = *args.layout;
  if (args.alpha == 1.0 && args.beta == 0.0 && args.epilogue.empty()) return {};
  if (layout.opaque && (args.epilogue.bias || args.epilogue.scale)) {
    return Error(Code::kUnsupported,
                 "a bias or scale needs to know channels, and the tile's layout is opaque");
  }
  for (const int64_t extent : layout.shape) {
    if (extent == 0) return {};
  }
  const Rows rows = layout.opaque              ? OpaqueRows(layout)
                    : layout.channel_block > 1 ? BlockedRows(layout)
                                               : PlainRows(layout);
  WithType(layout.dtype, [&](auto stored) {
    using Stored = decltype(stored);
    using T = std::conditional_t<std::is_same_v<Stored, double>, double, float>;
    FinishRows<Stored, T>(args, rows, parallel);
  });
  return {};
}

}  // namespace oocdnn::cpu
