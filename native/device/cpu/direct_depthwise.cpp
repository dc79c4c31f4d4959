// Forward and backward data of depthwise convolutions (one channel in, one out per group).
//
// There is no reduction over channels that would pay for packing. All tiles lie with the groups
// fastest instead, the groups are the lanes, and each position multiplies as many runs of groups
// as it has taps. Filters of many taps are summed in the blocks of geom/sum_blocks.hpp.
#include <algorithm>

#include "device/cpu/direct.hpp"
#include "device/cpu/gather.hpp"
#include "device/cpu/microkernel.hpp"
#include "device/layouts.hpp"
#include "geom/sum_blocks.hpp"

namespace oocdnn::cpu {
namespace {

// Lanes may be read past the last group of the last position.
constexpr int64_t kSlack = 64;
constexpr double kPieceWork = 1 << 18;  // multiply-adds worth a piece of parallel work

template <class T>
class DirectDepthwise final : public CpuExecutable {
 public:
  explicit DirectDepthwise(const TileOp& op);
  Status Run(const RunArgs& args, Parallel& parallel) override;

 private:
  // A row of positions of one phase and image, and the tiles.
  struct Row {
    const Phase& phase;
    int64_t n, d, h;
    const T* source;
    const T* weights;
    T* target;
    bool accumulate;
  };
  // The taps of a position that read inside of the source, and where the blocks of its sum end
  // among them.
  struct Steps {
    std::vector<ChainRow> taps;
    std::vector<size_t> ends;
  };
  void RunRow(const Row& row, Steps* steps) const;
  void TakeSteps(const Row& row, int64_t w, Steps* steps) const;
  void RunPosition(const Row& row, int64_t w, const Steps& steps) const;
  void RunGroups(const Row& row, const Steps& steps, Chain<T> chain, T* sums, int64_t count) const;

  const bool forward_;
  const Gather gather_;
  const bool one_block_;
};

template <class T>
DirectDepthwise<T>::DirectDepthwise(const TileOp& op)
    : forward_(op.direction == Direction::kForward),
      gather_(GatherOf(op)),
      one_block_(IsOneBlock(op.direction, op.shape)) {
  engine_ = DirectInfo().name;
  properties_ = DirectInfo().properties;
  const DType dtype = AccumulatorOf(op.dtype);
  const auto lay = [&](Operand operand, const std::array<int, 6>& order) {
    layout_[Index(operand)] =
        PlainLayout(dtype, op.shape.DimsOf(operand, op.direction), order, kSlack);
  };
  lay(Operand::kX, kChannelsLastOrder);
  lay(Operand::kY, kChannelsLastOrder);
  lay(Operand::kW, kGroupFastestOrder);
}

template <class T>
Status DirectDepthwise<T>::Run(const RunArgs& args, Parallel& parallel) {
  const auto* const source = static_cast<const T*>(args.tile[forward_ ? 0 : 2]);
  auto* const target = static_cast<T*>(args.tile[forward_ ? 2 : 0]);
  const auto* const weights = static_cast<const T*>(args.tile[Index(Operand::kW)]);
  for (int64_t number = 0; number < gather_.Phases(); ++number) {
    const Phase phase = gather_.PhaseAt(number);
    const int64_t ds = phase.axis[0]->extent, hs = phase.axis[1]->extent;
    const double work = static_cast<double>(phase.axis[2]->extent * phase.Taps() * gather_.g);
    const auto grain = static_cast<int64_t>(kPieceWork / std::max(work, 1.0)) + 1;
    parallel.For(gather_.n * ds * hs, grain, [&](int64_t begin, int64_t end) {
      Steps steps;
      for (int64_t i = begin; i < end; ++i) {
        RunRow(
            {phase, i / (ds * hs), i / hs % ds, i % hs, source, weights, target, args.accumulate},
            &steps);
      }
    });
  }
  return {};
}

// The steps of position `w`, whose `a` offsets count from the source element that position w reads
// with offset 0. Taps that read outside count where blocks end, as they do for other engines.
template <class T>
void DirectDepthwise<T>::TakeSteps(const Row& row, int64_t w, Steps* steps) const {
  const auto& axis = row.phase.axis;
  const Spatial& size = gather_.source;
  const auto inside = [&](int dim, int64_t position, const Tap& tap) {
    const int64_t at = position * axis[dim]->step + tap.offset;
    return at >= 0 && at < size[dim];
  };
  steps->taps.clear();
  steps->ends.clear();
  const auto cols = static_cast<int64_t>(axis[2]->taps.size());
  int64_t passed = 0;  // taps of the block
  for (const Tap& td : axis[0]->taps) {
    for (const Tap& th : axis[1]->taps) {
      const bool reads = inside(0, row.d, td) && inside(1, row.h, th);
      if (passed > 0 && passed + cols > kTapBlock) {
        steps->ends.push_back(steps->taps.size());
        passed = 0;
      }
      for (const Tap& tw : axis[2]->taps) {
        if (passed == kTapBlock) {
          steps->ends.push_back(steps->taps.size());
          passed = 0;
        }
        ++passed;
        if (!reads || !inside(2, w, tw)) continue;
        const int64_t read = (td.offset * size[1] + th.offset) * size[2] + tw.offset;
        const int64_t tap =
            (td.index * gather_.filter[1] + th.index) * gather_.filter[2] + tw.index;
        steps->taps.push_back({read * gather_.g, tap * gather_.g});
      }
    }
  }
  steps->ends.push_back(steps->taps.size());
}

// Positions whose taps on W all read inside share their steps.
template <class T>
void DirectDepthwise<T>::RunRow(const Row& row, Steps* steps) const {
  const GatherAxis& axis = *row.phase.axis[2];
  const auto inside = [&](int64_t w) {
    return axis.taps.empty() || (w * axis.step + axis.taps.front().offset >= 0 &&
                                 w * axis.step + axis.taps.front().offset < gather_.source[2] &&
                                 w * axis.step + axis.taps.back().offset >= 0 &&
                                 w * axis.step + axis.taps.back().offset < gather_.source[2]);
  };
  bool shared = false;
  for (int64_t w = 0; w < axis.extent; ++w) {
    if (!shared || !inside(w)) TakeSteps(row, w, steps);
    shared = inside(w);
    RunPosition(row, w, *steps);
  }
}

template <class T>
void DirectDepthwise<T>::RunPosition(const Row& row, int64_t w, const Steps& steps) const {
  const auto& axis = row.phase.axis;
  const Spatial& from = gather_.source;
  const Spatial& to = gather_.target;
  const auto out = [&](int d, int64_t i) { return axis[d]->out_begin + i * axis[d]->out_step; };
  const int64_t read =
      ((row.n * from[0] + row.d * axis[0]->step) * from[1] + row.h * axis[1]->step) * from[2] +
      w * axis[2]->step;
  const int64_t write =
      ((row.n * to[0] + out(0, row.d)) * to[1] + out(1, row.h)) * to[2] + out(2, w);
  Chain<T> chain{row.source + read * gather_.g,
                 row.weights,
                 steps.taps.data(),
                 static_cast<int64_t>(steps.taps.size()),
                 1,
                 0,
                 0};
  const auto run = [&](T* sums, int64_t count) {
    if (!one_block_) return RunGroups(row, steps, chain, sums, count);
    RunPairs(chain, sums, count, row.accumulate ? Into::kContinue : Into::kStore);
  };
  T* target = row.target + write * gather_.g;
  const int64_t whole = gather_.g - gather_.g % Kernels<T>().lanes;
  run(target, whole);
  if (whole == gather_.g) return;
  // The last groups do not fill a vector, and what lies behind them is the next position.
  alignas(64) T sums[kColumnLanes<T>] = {};
  std::copy_n(target + whole, gather_.g - whole, sums);
  chain.a += whole;
  chain.b += whole;
  run(sums, gather_.g - whole);
  std::copy_n(sums, gather_.g - whole, target + whole);
}

// Block by block, `count` neighbouring groups. Sums of several blocks are added to what the tile
// holds at the end.
template <class T>
void DirectDepthwise<T>::RunGroups(const Row& row, const Steps& steps, Chain<T> chain, T* sums,
                                   int64_t count) const {
  if (row.accumulate) {
    Row apart = row;
    apart.accumulate = false;
    for (int64_t lane = 0; lane < count; lane += kColumnLanes<T>) {
      const int64_t some = std::min(kColumnLanes<T>, count - lane);
      alignas(64) T all[kColumnLanes<T>];
      RunGroups(apart, steps, chain, all, some);
      for (int64_t i = 0; i < some; ++i) sums[lane + i] += all[i];
      chain.a += some;
      chain.b += some;
    }
    return;
  }
  Into into = Into::kStore;
  size_t begin = 0;
  for (const size_t end : steps.ends) {
    chain.row = steps.taps.data() + begin;
    chain.rows = static_cast<int64_t>(end - begin);
    RunPairs(chain, sums, count, into);
    into = Into::kAdd;
    begin = end;
  }
}

}  // namespace

bool IsDepthwise(const ConvShape& shape) { return shape.c == 1 && shape.k == 1 && shape.g > 1; }

Result<std::unique_ptr<CpuExecutable>> PrepareDirectDepthwise(const TileOp& op) {
  if (op.dtype == DType::kFloat64) {
    return std::unique_ptr<CpuExecutable>(std::make_unique<DirectDepthwise<double>>(op));
  }
  return std::unique_ptr<CpuExecutable>(std::make_unique<DirectDepthwise<float>>(op));
}

}  // namespace oocdnn::cpu
