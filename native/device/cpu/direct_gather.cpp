// Forward and backward data of the direct engine.
//
// Work is cut into panels: up to kPanelLanes neighbouring output positions of one group, counted
// through all images. A thread packs what the panel's positions read, step by step of their chains,
// into a contiguous array in its scratch, and runs the micro-kernel over it for all output
// channels. Long reductions are cut into blocks whose packed steps stay in the second cache; the
// sums wait in the output.
#include <algorithm>
#include <cstring>

#include "device/cpu/direct.hpp"
#include "device/cpu/gather.hpp"
#include "device/cpu/layouts.hpp"
#include "device/cpu/microkernel.hpp"
#include "device/cpu/scratch.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kPanelBytes = 128 << 10;  // packed steps of one block
constexpr int64_t kBlockRows = 1024;        // rows of taps of one block, at most
constexpr int64_t kRowBlock = 8;            // output channels that share the scratch for sums
constexpr double kPieceWork = 1 << 18;      // multiply-adds worth a piece of parallel work

// Lanes of a panel: several columns of the micro-kernel, so that the weights that one column has
// brought into the first cache serve the others.
template <class T>
constexpr int64_t kPanelLanes = 4 * kColumnLanes<T>;

// The cut of one phase into units of work.
struct Cut {
  int64_t panels = 0, panel_lanes = 0;           // positions
  int64_t channel_parts = 1, part_channels = 0;  // output channels
  int64_t first_unit = 0, units = 0;
};

template <class T>
class DirectGather final : public CpuExecutable {
 public:
  DirectGather(const TileOp& op, int threads);
  Status Run(const RunArgs& args, Parallel& parallel) override;

 private:
  // A panel at work: where it lies, and the thread's scratch.
  struct Panel {
    const Phase& phase;
    const T* source;   // of the group in image 0
    const T* weights;  // of the group
    T* target;         // of the group in image 0
    int64_t first = 0, lanes = 0, padded = 0;
    int64_t channel_begin = 0, channel_end = 0;
    T* packed = nullptr;
    ChainRow* rows = nullptr;
    std::vector<Segment> segments{};
  };

  void CutPhases(int threads);
  void SizeScratch(int64_t limit);
  int64_t SlotBytes() const {
    return RoundUp(packed_bytes_, 64) +
           RoundUp(block_rows_ * static_cast<int64_t>(sizeof(ChainRow)), 64);
  }
  static int64_t StepBytes() { return kPanelLanes<T> * static_cast<int64_t>(sizeof(T)); }

  void RunUnit(const RunArgs& args, int64_t unit, char* scratch) const;
  void RunPanel(Panel* panel, bool accumulate) const;
  void Pack(Panel* panel, int64_t row_begin, int64_t row_end) const;
  void PackStep(const Panel& panel, const T* channel, const Tap& d, const Tap& h, const Tap& w,
                T* to) const;
  Chain<T> ChainOf(const Panel& panel, int64_t row_begin, int64_t row_end) const;
  void RunBlock(const Panel& panel, const Chain<T>& chain, bool load) const;
  void Exchange(const Panel& panel, int64_t channel, int64_t count, T* sums, bool store) const;

  // Elements of one channel, of one image, and taps of a filter.
  static int64_t Size(const Spatial& s) { return s[0] * s[1] * s[2]; }
  int64_t SourceSize() const { return Size(gather_.source); }
  int64_t TargetSize() const { return Size(gather_.target); }
  int64_t FilterSize() const { return Size(gather_.filter); }
  int64_t SourceImage() const { return gather_.g * gather_.reduced * SourceSize(); }
  int64_t TargetImage() const { return gather_.g * gather_.channels * TargetSize(); }

  const Direction direction_;
  const Gather gather_;
  std::vector<Cut> cuts_;  // of each phase
  int64_t packed_bytes_ = 0, block_rows_ = 1;
  int64_t units_ = 0, grain_ = 1;
  int slots_;  // of scratch: as many as threads where they fit
};

template <class T>
DirectGather<T>::DirectGather(const TileOp& op, int threads)
    : direction_(op.direction), gather_(GatherOf(op)), slots_(threads) {
  engine_ = DirectInfo().name;
  properties_ = DirectInfo().properties;
  const DType dtype = AccumulatorOf(op.dtype);
  const bool forward = op.direction == Direction::kForward;
  const auto dims = [&](Operand operand) { return op.shape.DimsOf(operand, op.direction); };
  layout_[Index(Operand::kX)] = PlainLayout(dtype, dims(Operand::kX), kDenseOrder);
  layout_[Index(Operand::kY)] = PlainLayout(dtype, dims(Operand::kY), kDenseOrder);
  layout_[Index(Operand::kW)] =
      PlainLayout(dtype, dims(Operand::kW), forward ? kOutputFastestOrder : kInputFastestOrder);
  CutPhases(threads);
  SizeScratch(op.workspace_limit);
  workspace_bytes_ = slots_ * SlotBytes();
}

// Panels of nearly equal length. Where they are too few for all threads, the output channels are
// cut too, though then every part packs the same panel.
template <class T>
void DirectGather<T>::CutPhases(int threads) {
  double work = 0;
  for (const Phase& phase : gather_.phases) {
    Cut cut;
    const int64_t positions = gather_.n * phase.Positions();
    const int64_t count = std::max<int64_t>(CeilDiv(positions, kPanelLanes<T>), 1);
    cut.panel_lanes = std::max<int64_t>(RoundUp(CeilDiv(positions, count), Kernels<T>().lanes), 1);
    cut.panels = CeilDiv(positions, cut.panel_lanes);
    const int64_t panels = gather_.g * cut.panels;
    const int64_t parts = CeilDiv(4 * threads, std::max<int64_t>(panels, 1));
    cut.part_channels = std::max(RoundUp(CeilDiv(gather_.channels, parts), kRowBlock),
                                 std::min<int64_t>(gather_.channels, 64));
    cut.channel_parts = CeilDiv(gather_.channels, std::max<int64_t>(cut.part_channels, 1));
    cut.first_unit = units_;
    cut.units = panels * cut.channel_parts;
    units_ += cut.units;
    work += static_cast<double>(gather_.g * positions * phase.Taps()) *
            static_cast<double>(gather_.channels * gather_.reduced);
    cuts_.push_back(cut);
  }
  const double per_unit = work / std::max<double>(static_cast<double>(units_), 1.0);
  grain_ = std::max<int64_t>(1, static_cast<int64_t>(kPieceWork / std::max(per_unit, 1.0)));
}

// One row of taps must fit, whatever its length. Where memory is short the blocks get smaller, and
// at last threads share one slot of scratch.
template <class T>
void DirectGather<T>::SizeScratch(int64_t limit) {
  int64_t rows = 1, longest = 1;
  for (const Phase& phase : gather_.phases) {
    const auto cols = std::max<int64_t>(static_cast<int64_t>(phase.axis[2].taps.size()), 1);
    rows = std::max(rows, gather_.reduced * phase.Taps() / cols);
    longest = std::max(longest, cols);
  }
  const int64_t row_bytes = longest * StepBytes();
  block_rows_ = std::min({rows, kBlockRows, std::max<int64_t>(kPanelBytes / row_bytes, 1)});
  packed_bytes_ = block_rows_ * row_bytes;
  while (slots_ * SlotBytes() > limit && block_rows_ > 1) {
    block_rows_ /= 2;
    packed_bytes_ = block_rows_ * row_bytes;
  }
  if (slots_ * SlotBytes() > limit) slots_ = 1;
}

template <class T>
Status DirectGather<T>::Run(const RunArgs& args, Parallel& parallel) {
  Scratch scratch(args.workspace, SlotBytes(), slots_);
  parallel.For(units_, grain_, [&](int64_t begin, int64_t end) {
    const Scratch::Slot slot(&scratch);
    for (int64_t unit = begin; unit < end; ++unit) RunUnit(args, unit, slot.data());
  });
  return {};
}

template <class T>
void DirectGather<T>::RunUnit(const RunArgs& args, int64_t unit, char* scratch) const {
  size_t p = 0;
  while (unit >= cuts_[p].first_unit + cuts_[p].units) ++p;
  const Cut& cut = cuts_[p];
  const Phase& phase = gather_.phases[p];
  int64_t rest = unit - cut.first_unit;
  const int64_t number = rest % cut.panels;
  rest /= cut.panels;
  const int64_t part = rest % cut.channel_parts;
  const int64_t g = rest / cut.channel_parts;
  const bool forward = direction_ == Direction::kForward;
  const auto* const source = static_cast<const T*>(args.tile[forward ? 0 : 2]);
  auto* const target = static_cast<T*>(args.tile[forward ? 2 : 0]);
  const auto* const weights = static_cast<const T*>(args.tile[Index(Operand::kW)]);
  Panel panel{phase, source + g * gather_.reduced * SourceSize(),
              weights + g * gather_.reduced * FilterSize() * gather_.channels,
              target + g * gather_.channels * TargetSize()};
  panel.first = number * cut.panel_lanes;
  panel.lanes = std::min(cut.panel_lanes, gather_.n * phase.Positions() - panel.first);
  panel.padded = RoundUp(panel.lanes, Kernels<T>().lanes);
  panel.channel_begin = part * cut.part_channels;
  panel.channel_end = std::min(panel.channel_begin + cut.part_channels, gather_.channels);
  panel.packed = reinterpret_cast<T*>(scratch);
  panel.rows = reinterpret_cast<ChainRow*>(scratch + RoundUp(packed_bytes_, 64));
  CutIntoSegments(phase, panel.first, panel.lanes, &panel.segments);
  RunPanel(&panel, args.accumulate);
}

// The chain's rows are (reduced channel, tap on D, tap on H), its columns the taps on W.
template <class T>
void DirectGather<T>::RunPanel(Panel* panel, bool accumulate) const {
  const auto& axis = panel->phase.axis;
  const auto cols = static_cast<int64_t>(axis[2].taps.size());
  const int64_t rows =
      cols == 0 ? 0
                : gather_.reduced * static_cast<int64_t>(axis[0].taps.size() * axis[1].taps.size());
  const int64_t row_bytes =
      std::max<int64_t>(cols, 1) * panel->padded * static_cast<int64_t>(sizeof(T));
  const int64_t step = std::clamp<int64_t>(packed_bytes_ / row_bytes, 1, block_rows_);
  int64_t row = 0;
  do {  // once even for an empty reduction, whose sums are zero
    const int64_t end = std::min(row + step, rows);
    Pack(panel, row, end);
    RunBlock(*panel, ChainOf(*panel, row, end), accumulate || row > 0);
    row = end;
  } while (row < rows);
}

template <class T>
void DirectGather<T>::Pack(Panel* panel, int64_t row_begin, int64_t row_end) const {
  const auto& axis = panel->phase.axis;
  const auto ds = static_cast<int64_t>(axis[0].taps.size());
  const auto hs = static_cast<int64_t>(axis[1].taps.size());
  const auto cols = static_cast<int64_t>(axis[2].taps.size());
  T* to = panel->packed;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t c = row / (ds * hs);
    const Tap& d = axis[0].taps[static_cast<size_t>(row / hs % ds)];
    const Tap& h = axis[1].taps[static_cast<size_t>(row % hs)];
    const int64_t tap_row = (c * gather_.filter[0] + d.index) * gather_.filter[1] + h.index;
    const int64_t first = tap_row * gather_.filter[2] + axis[2].taps[0].index;
    panel->rows[row - row_begin] = {first * gather_.channels,
                                    (row - row_begin) * cols * panel->padded};
    for (const Tap& w : axis[2].taps) {
      PackStep(*panel, panel->source + c * SourceSize(), d, h, w, to);
      to += panel->padded;
    }
  }
}

// to[i] = from[i * step], with the common steps known to the compiler.
template <class T>
void CopySpaced(const T* from, int64_t step, int64_t count, T* to) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  } else if (step == 2) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * 2];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

// What every position of the panel reads through one tap; zero outside of the source.
template <class T>
void DirectGather<T>::PackStep(const Panel& panel, const T* channel, const Tap& d, const Tap& h,
                               const Tap& w, T* to) const {
  const auto& axis = panel.phase.axis;
  const Spatial& size = gather_.source;
  for (const Segment& segment : panel.segments) {
    const int64_t sd = segment.d * axis[0].step + d.offset;
    const int64_t sh = segment.h * axis[1].step + h.offset;
    const int64_t sw = segment.w * axis[2].step + w.offset;
    T* const row = to + segment.lane;
    int64_t begin = 0, end = segment.count;  // of the positions that read inside of the source
    if (axis[2].step == 1) {
      end = std::clamp<int64_t>(size[2] - sw, 0, end);
      begin = std::clamp<int64_t>(-sw, 0, end);
    }
    if (sd < 0 || sd >= size[0] || sh < 0 || sh >= size[1]) begin = end = 0;
    if (begin < end) {
      const T* const from = channel + segment.n * SourceImage() + (sd * size[1] + sh) * size[2];
      CopySpaced(from + sw + begin * axis[2].step, axis[2].step, end - begin, row + begin);
    }
    std::fill(row, row + begin, T(0));
    std::fill(row + end, row + segment.count, T(0));
  }
  std::fill(to + panel.lanes, to + panel.padded, T(0));
}

template <class T>
Chain<T> DirectGather<T>::ChainOf(const Panel& panel, int64_t row_begin, int64_t row_end) const {
  const std::vector<Tap>& taps = panel.phase.axis[2].taps;
  Chain<T> chain;
  chain.a = panel.weights;
  chain.b = panel.packed;
  chain.row = panel.rows;
  chain.rows = row_end - row_begin;
  chain.cols = static_cast<int64_t>(taps.size());
  chain.a_col = gather_.channels * (taps.size() > 1 ? taps[1].index - taps[0].index : 1);
  chain.b_col = panel.padded;
  // Where every tap of the filter takes part, all rows are one.
  if (panel.phase.Taps() == FilterSize()) {
    chain.cols *= chain.rows;
    chain.rows = std::min<int64_t>(chain.rows, 1);
  }
  return chain;
}

// Sums go straight to the output where whole vectors of it are the panel's, else by way of a
// small block.
template <class T>
void DirectGather<T>::RunBlock(const Panel& panel, const Chain<T>& chain, bool load) const {
  const int64_t image = panel.segments.empty() ? 0 : panel.segments.front().n;
  const bool straight =
      panel.phase.Contiguous() && panel.lanes == panel.padded && image == panel.segments.back().n;
  Chain<T> part = chain;
  part.a += panel.channel_begin;
  if (straight) {
    T* const target = panel.target + image * TargetImage() + panel.channel_begin * TargetSize() +
                      panel.first - image * panel.phase.Positions();
    return RunChain(part, target, TargetSize(), panel.channel_end - panel.channel_begin,
                    panel.lanes, load);
  }
  alignas(64) T sums[kRowBlock * kPanelLanes<T>];
  for (int64_t m = panel.channel_begin; m < panel.channel_end; m += kRowBlock) {
    const int64_t count = std::min(kRowBlock, panel.channel_end - m);
    if (load) Exchange(panel, m, count, sums, false);
    RunChain(part, sums, kPanelLanes<T>, count, panel.lanes, load);
    Exchange(panel, m, count, sums, true);
    part.a += kRowBlock;
  }
}

// Copies the panel's sums of `count` channels from the output to `sums`, or back.
template <class T>
void DirectGather<T>::Exchange(const Panel& panel, int64_t channel, int64_t count, T* sums,
                               bool store) const {
  const auto& axis = panel.phase.axis;
  const auto place = [&](int d, int64_t i) { return axis[d].out_begin + i * axis[d].out_step; };
  const int64_t step = axis[2].out_step;
  for (int64_t m = 0; m < count; ++m) {
    T* const plane = panel.target + (channel + m) * TargetSize();
    for (const Segment& segment : panel.segments) {
      T* const out =
          plane + segment.n * TargetImage() +
          (place(0, segment.d) * gather_.target[1] + place(1, segment.h)) * gather_.target[2] +
          place(2, segment.w);
      T* const sum = sums + m * kPanelLanes<T> + segment.lane;
      for (int64_t i = 0; i < segment.count; ++i) {
        if (store) {
          out[i * step] = sum[i];
        } else {
          sum[i] = out[i * step];
        }
      }
    }
  }
}

template <class T>
Result<std::unique_ptr<CpuExecutable>> Make(const TileOp& op, int threads) {
  auto made = std::make_unique<DirectGather<T>>(op, threads);
  if (made->workspace_bytes() > op.workspace_limit) {
    return Error(Code::kOutOfMemory, "needs %lld bytes of workspace, and %lld are allowed",
                 static_cast<long long>(made->workspace_bytes()),
                 static_cast<long long>(op.workspace_limit))
        .WithDetail(made->workspace_bytes());
  }
  return std::unique_ptr<CpuExecutable>(std::move(made));
}

}  // namespace

Result<std::unique_ptr<CpuExecutable>> PrepareDirectGather(const TileOp& op, int threads) {
  return op.dtype == DType::kFloat64 ? Make<double>(op, threads) : Make<float>(op, threads);
}

}  // namespace oocdnn::cpu
