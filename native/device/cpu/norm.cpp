// Applying goes along rows of W, one channel after the other, in runs that stay in the first cache.
// Summing up gives each channel to one thread; neighbouring channels that share cache lines go
// together. kLanes sums stand beside each other, so that additions need not wait for each other.
// Deviations are from elements of the channel, see Summing.
#include "device/cpu/norm.hpp"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/convert.hpp"
#include "device/cpu/tile_rows.hpp"
#include "geom/moments.h"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kRun = 256;
constexpr int64_t kPiece = 8192;  // elements worth handing out
constexpr int64_t kLanes = 16;
static_assert(sizeof(Moments) == kSumNumbers * sizeof(double));

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
  ActivateAll(args.activation, static_cast<T>(args.parameter), v, count);
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
      const T* const pair = table != nullptr ? table + args.EntryOf(n, g, c) : nullptr;
      for (int64_t at = 0; at < width; at += kRun) {
        ApplyRun<Stored, T>(args, pair, to + at * step, step, std::min(kRun, width - at));
      }
    }
  });
}

template <class Out, class Stored>
double ValueOf(Stored stored) {
  return static_cast<double>(Widen(Convert<Out>(stored)));
}

// Sums up elements of one channel, or of up to kLanes channels that lie side by side. Blocks of
// kSpan elements of a channel are summed relative to their first element, then merged.
template <class Stored, class Out>
class Summing {
 public:
  explicit Summing(int64_t channels) : channels_(channels) {}

  // `width` elements of each channel, `step` apart.
  void Add(const Stored* row, int64_t step, int64_t width) {
    for (int64_t at = 0, taken = 0; at < width; at += taken) {
      if (count_ == kSpan) Flush();
      if (count_ == 0) Start(row + at * step);
      taken = std::min(width - at, kSpan - count_);
      if (channels_ == 1) {
        AddOne(row + at * step, step, taken);
      } else {
        AddBeside(row + at * step, step, taken);
      }
      count_ += taken;
    }
  }

  // Adds what there is of channel `c` to its entry; once, behind the last Add.
  void End(int64_t c, Moments* entry) {
    if (count_ > 0) Flush();
    const auto at = static_cast<size_t>(c);
    moments_[at].mean += from_[at];
    Merge(moments_[at], entry);
  }

 private:
  using Lanes = std::array<double, kLanes>;
  static constexpr int64_t kSpan = 1024;

  // The origin must be finite.
  void Start(const Stored* first) {
    for (int64_t c = 0; c < channels_; ++c) {
      const auto at = static_cast<size_t>(c);
      const double value = ValueOf<Out>(first[c]);
      origin_[at] = IsFinite(value) ? value : 0.0;
      if (!begun_) from_[at] = origin_[at];
    }
    begun_ = true;
    sum_ = square_ = {};
  }

  void AddOne(const Stored* row, int64_t step, int64_t count) {
    const double origin = origin_[0];
    Lanes sum = sum_, square = square_;
    const auto add = [&](int64_t i, size_t lane) {
      const double v = ValueOf<Out>(row[i * step]) - origin;
      sum[lane] += v;
      square[lane] += v * v;
    };
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, static_cast<size_t>(lane));
    }
    for (int64_t lane = 0; i + lane < count; ++lane) add(i + lane, static_cast<size_t>(lane));
    sum_ = sum;
    square_ = square;
  }

  void AddBeside(const Stored* row, int64_t step, int64_t count) {
    const auto channels = static_cast<size_t>(channels_);
    const Lanes origin = origin_;
    Lanes sum = sum_, square = square_;
    for (int64_t i = 0; i < count; ++i, row += step) {
      for (size_t c = 0; c < channels; ++c) {
        const double v = ValueOf<Out>(row[c]) - origin[c];
        sum[c] += v;
        square[c] += v * v;
      }
    }
    sum_ = sum;
    square_ = square;
  }

  void Flush() {
    if (channels_ == 1) {
      for (size_t lane = 1; lane < sum_.size(); ++lane) {
        sum_[0] += sum_[lane];
        square_[0] += square_[lane];
      }
    }
    for (int64_t c = 0; c < channels_; ++c) {
      const auto at = static_cast<size_t>(c);
      const auto count = static_cast<double>(count_);
      Merge(MomentsAbout(origin_[at], from_[at], sum_[at], square_[at], count), &moments_[at]);
    }
    count_ = 0;
  }

  int64_t channels_, count_ = 0;
  bool begun_ = false;
  // Means are relative to the channel's first element, so that a large mean is rounded once.
  Lanes origin_{}, from_{}, sum_{}, square_{};
  std::array<Moments, kLanes> moments_{};
};

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
    Summing<Stored, Out> summing(channels);
    for (int64_t d = args.begin[3]; d < args.end[3]; ++d) {
      for (int64_t h = args.begin[4]; h < args.end[4]; ++h) {
        const Stored* const row = static_cast<const Stored*>(args.tile) +
                                  RowAt(layout, n, g * layout.shape[2] + c, d, h) +
                                  args.begin[5] * step;
        summing.Add(row, step, width);
      }
    }
    for (int64_t beside = 0; beside < channels; ++beside) {
      void* const entry = static_cast<double*>(args.table) + args.EntryOf(n, g, c + beside);
      summing.End(beside, static_cast<Moments*>(entry));
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
