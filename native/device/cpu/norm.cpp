// Applying goes along rows of W, one channel after the other, in runs that stay in the first cache.
// Summing up gives each channel to one thread; neighbouring channels that share cache lines go
// together. kLanes sums stand beside each other, so that additions need not wait for each other.
#include "device/cpu/norm.hpp"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/convert.hpp"
#include "device/cpu/tile_rows.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kRun = 256;
constexpr int64_t kPiece = 8192;  // elements worth handing out
constexpr int64_t kLanes = 16;

// The part of the tile that a pass goes over, as extents.
Dims ExtentsOf(const NormArgs& args) {
  Dims extents{};
  for (size_t d = 0; d < extents.size(); ++d) extents[d] = args.end[d] - args.begin[d];
  return extents;
}

// Takes the index along a dimension of the part off a running number.
int64_t Take(const NormArgs& args, size_t dimension, int64_t* rest) {
  const int64_t extent = args.end[dimension] - args.begin[dimension];
  const int64_t index = *rest % extent;
  *rest /= extent;
  return args.begin[dimension] + index;
}

// One run of a row, of which the channel's scale and shift are known.
template <class Stored, class T>
void ApplyRun(const NormArgs& args, const T* pair, Stored* row, int64_t step, int64_t count) {
  T v[kRun];
  for (int64_t i = 0; i < count; ++i) v[i] = static_cast<T>(Widen(row[i * step]));
  if (pair != nullptr) {
    const T scale = pair[0], shift = pair[1];
    for (int64_t i = 0; i < count; ++i) v[i] *= scale;
    for (int64_t i = 0; i < count; ++i) v[i] += shift;
  }
  Activate(args.activation, static_cast<T>(args.parameter), v, count);
  for (int64_t i = 0; i < count; ++i) row[i * step] = Convert<Stored>(v[i]);
}

template <class Stored>
void Apply(const NormArgs& args, Parallel& parallel) {
  using T = std::conditional_t<std::is_same_v<Stored, double>, double, float>;
  const TileLayout& layout = *args.layout;
  const Dims extents = ExtentsOf(args);
  const int64_t width = extents[5], step = layout.stride[5];
  const int64_t rows = extents[0] * extents[1] * extents[2] * extents[3] * extents[4];
  parallel.For(rows, std::max<int64_t>(kPiece / width, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row;  // channels innermost, see ForRows
      const int64_t c = Take(args, 2, &rest), g = Take(args, 1, &rest), h = Take(args, 4, &rest);
      const int64_t d = Take(args, 3, &rest), n = Take(args, 0, &rest);
      Stored* const to = static_cast<Stored*>(args.tile) +
                         RowAt(layout, n, g * layout.shape[2] + c, d, h) + args.begin[5] * step;
      const auto* const table = static_cast<const T*>(args.table);
      const T* const pair = table != nullptr ? table + 2 * args.PairOf(n, g, c) : nullptr;
      for (int64_t at = 0; at < width; at += kRun) {
        ApplyRun<Stored, T>(args, pair, to + at * step, step, std::min(kRun, width - at));
      }
    }
  });
}

struct Sums {
  std::array<double, kLanes> sum{}, square{};
};

template <class Stored, class Out>
void AddUp(const Stored* row, int64_t step, int64_t count, Sums* sums) {
  const auto add = [&](int64_t i, int64_t lane) {
    const auto v = static_cast<double>(Widen(Convert<Out>(row[i * step])));
    sums->sum[static_cast<size_t>(lane)] += v;
    sums->square[static_cast<size_t>(lane)] += v * v;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int64_t lane = 0; i + lane < count; ++lane) add(i + lane, lane);
}

// Calls fn(n, g, c, channels) for channels that lie side by side, or one at a time; in parallel.
template <class Fn>
void ForChannels(const NormArgs& args, Parallel& parallel, const Fn& fn) {
  const TileLayout& layout = *args.layout;
  const Dims extents = ExtentsOf(args);
  const bool beside = layout.channel_block > 1 || layout.stride[2] == 1;
  const int64_t chunk = beside ? kLanes : 1, chunks = CeilDiv(extents[2], chunk);
  parallel.For(extents[0] * extents[1] * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t rest = item / chunks;
      const int64_t g = Take(args, 1, &rest), n = Take(args, 0, &rest);
      const int64_t first = args.begin[2] + item % chunks * chunk;
      const int64_t last = std::min(first + chunk, args.end[2]);
      for (int64_t c = first, next = 0; c < last; c = next) {
        const int64_t block = layout.channel_block;
        const int64_t left = block - (g * layout.shape[2] + c) % block;
        next = block > 1 ? std::min(last, c + left) : last;
        fn(n, g, c, next - c);
      }
    }
  });
}

template <class Stored, class Out>
void SumUp(const NormArgs& args, Parallel& parallel) {
  const TileLayout& layout = *args.layout;
  const int64_t step = layout.stride[5], width = args.end[5] - args.begin[5];
  ForChannels(args, parallel, [&](int64_t n, int64_t g, int64_t c, int64_t channels) {
    Sums sums;
    for (int64_t d = args.begin[3]; d < args.end[3]; ++d) {
      for (int64_t h = args.begin[4]; h < args.end[4]; ++h) {
        const Stored* const row = static_cast<const Stored*>(args.tile) +
                                  RowAt(layout, n, g * layout.shape[2] + c, d, h) +
                                  args.begin[5] * step;
        if (channels == 1) AddUp<Stored, Out>(row, step, width, &sums);
        for (int64_t w = 0; w < width && channels > 1; ++w) {
          AddUp<Stored, Out>(row + w * step, 1, channels, &sums);
        }
      }
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t channel = channels > 1 ? lane : 0;
      if (channel >= channels) break;
      double* const pair = static_cast<double*>(args.table) + 2 * args.PairOf(n, g, c + channel);
      pair[0] += sums.sum[static_cast<size_t>(lane)];
      pair[1] += sums.square[static_cast<size_t>(lane)];
    }
  });
}

}  // namespace

Status NormTile(const NormArgs& args, Parallel& parallel) {
  if (args.layout->opaque) {
    return Error(Code::kUnsupported, "a tile whose layout is opaque has no channels to normalise");
  }
  if (args.empty()) return {};
  WithType(args.layout->dtype, [&](auto stored) {
    using Stored = decltype(stored);
    if (args.pass == NormPass::kApply) return Apply<Stored>(args, parallel);
    WithType(args.rounded, [&](auto out) { SumUp<Stored, decltype(out)>(args, parallel); });
  });
  return {};
}

}  // namespace oocdnn::cpu
