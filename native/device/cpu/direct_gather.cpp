// Forward and backward data of the direct engine.
//
// Work is cut into panels: up to kPanelLanes neighbouring output positions of one group, counted
// through all images. A thread packs what the panel's positions read, one step of their sums
// (microkernel.hpp) after the other, into a contiguous array in its scratch, and runs the
// micro-kernel over it for all output channels. Long sums are cut into the blocks of
// geom/sum_blocks.hpp, whose packed steps stay in the second cache; sums of blocks are added up in
// the output. The sums of groups of blocks are added up in scratch first where there are several
// groups, or the output holds other groups' already. Where memory is too short for the steps of a
// block, they are packed piece by piece, anew for every few output channels.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "device/cpu/direct.hpp"
#include "device/cpu/gather.hpp"
#include "device/cpu/microkernel.hpp"
#include "device/cpu/pack.hpp"
#include "device/cpu/scratch.hpp"
#include "device/layouts.hpp"
#include "geom/sum_blocks.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kRowBlock = 8;     // output channels that share the scratch for sums
constexpr int64_t kLeastSteps = 16;  // packed at once while every thread has scratch
constexpr int64_t kGroupSums = 64;   // output channels at most whose groups are summed in scratch
constexpr double kPieceWork = 1 << 18;  // multiply-adds worth a piece of parallel work

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
    Phase phase;
    const T* source;   // of the group in image 0
    const T* weights;  // of the group
    T* target;         // of the group in image 0
    int64_t first = 0, lanes = 0, padded = 0;
    int64_t channel_begin = 0, channel_end = 0;
    T* packed = nullptr;
    ChainRow* rows = nullptr;
    T* group = nullptr;  // sums of one group; null: they are in the target
    std::vector<Segment> segments{};
  };

  // Steps of a panel's chain: rows [begin, end) of taps, and of each the taps
  // [col_begin, col_end).
  struct Block {
    int64_t begin = 0, end = 0, col_begin = 0, col_end = 0;
  };
  enum class Moves : uint8_t { kLoad, kStore, kAdd };

  void CutPhases(int threads);
  void SizeScratch(int64_t limit);
  // Bytes of the packed steps, of their rows, and of the sums of groups.
  int64_t PackedBytes() const {
    return RoundUp(packed_steps_ * lanes_ * static_cast<int64_t>(sizeof(T)), 64);
  }
  int64_t RowBytes() const {
    const int64_t rows = std::min(block_rows_, packed_steps_);
    return RoundUp(rows * static_cast<int64_t>(sizeof(ChainRow)), 64);
  }
  int64_t GroupBytes() const {
    return grouped_ ? GroupSums() * lanes_ * static_cast<int64_t>(sizeof(T)) : 0;
  }
  int64_t SlotBytes() const { return PackedBytes() + RowBytes() + GroupBytes(); }
  int64_t GroupSums() const {
    return std::min(gather_.channels, InPieces() ? kRowBlock : kGroupSums);
  }
  bool InPieces() const { return packed_steps_ < block_steps_; }

  void RunUnit(const RunArgs& args, int64_t unit, char* scratch) const;
  void RunPanel(Panel* panel, bool accumulate) const;
  void RunGroup(Panel* panel, int64_t begin, int64_t end, Into first) const;
  void RunPieces(Panel* panel, const Block& block, Into into) const;
  void PackPieces(Panel* panel, const Block& block, int64_t channel, int64_t count, Into first,
                  T* sums) const;
  void Pack(Panel* panel, const Block& block) const;
  Chain<T> ChainOf(const Panel& panel, const Block& block) const;
  void RunBlock(const Panel& panel, const Chain<T>& chain, Into into) const;
  template <Moves kMoves>
  void Exchange(const Panel& panel, int64_t channel, int64_t count, T* sums, int64_t step) const;
  template <Moves kMoves>
  void PutGroup(const Panel& panel) const {
    Exchange<kMoves>(panel, panel.channel_begin, panel.channel_end - panel.channel_begin,
                     panel.group, panel.padded);
  }

  // Elements of one channel, of one image, and taps of a filter.
  static int64_t Size(const Spatial& s) { return s[0] * s[1] * s[2]; }
  int64_t SourceSize() const { return Size(gather_.source); }
  int64_t TargetSize() const { return Size(gather_.target); }
  int64_t FilterSize() const { return Size(gather_.filter); }
  int64_t TargetImage() const { return gather_.g * gather_.channels * TargetSize(); }

  const Direction direction_;
  const Gather gather_;
  // See geom/sum_blocks.hpp: whether a sum is one block, and channels of a group.
  const bool one_block_;
  const int64_t group_channels_;
  const bool grouped_;              // whether groups are summed in scratch
  std::vector<Cut> cuts_;           // of each phase
  int64_t lanes_ = kPanelLanes<T>;  // of a panel, at most
  int64_t block_steps_ = 1, block_rows_ = 1;
  int64_t packed_steps_ = 1;  // at once
  int64_t units_ = 0, grain_ = 1;
  int slots_;  // of scratch: as many as threads where they fit
};

template <class T>
DirectGather<T>::DirectGather(const TileOp& op, int threads)
    : direction_(op.direction),
      gather_(GatherOf(op)),
      one_block_(IsOneBlock(op.direction, op.shape)),
      group_channels_(GroupChannelsOf(op.shape)),
      grouped_(!one_block_ && (op.accumulates || gather_.reduced > group_channels_)),
      slots_(threads) {
  engine_ = DirectInfo().name;
  properties_ = DirectInfo().properties;
  const DType dtype = AccumulatorOf(op.dtype);
  const bool forward = op.direction == Direction::kForward;
  const auto dims = [&](Operand operand) { return op.shape.DimsOf(operand, op.direction); };
  layout_[Index(Operand::kX)] = PlainLayout(dtype, dims(Operand::kX), kDenseOrder);
  layout_[Index(Operand::kY)] = PlainLayout(dtype, dims(Operand::kY), kDenseOrder);
  layout_[Index(Operand::kW)] =
      PlainLayout(dtype, dims(Operand::kW), forward ? kOutputFastestOrder : kInputFastestOrder);
  SizeScratch(op.workspace_limit);
  CutPhases(threads);
  workspace_bytes_ = slots_ * SlotBytes();
}

// Panels of nearly equal length. Where they are too few for all threads, the output channels are
// cut too, though then every part packs the same panel.
template <class T>
void DirectGather<T>::CutPhases(int threads) {
  double work = 0;
  cuts_.reserve(static_cast<size_t>(gather_.Phases()));
  for (int64_t number = 0; number < gather_.Phases(); ++number) {
    const Phase phase = gather_.PhaseAt(number);
    Cut cut;
    const int64_t positions = gather_.n * phase.Positions();
    const int64_t count = std::max<int64_t>(CeilDiv(positions, lanes_), 1);
    cut.panel_lanes = std::max<int64_t>(RoundUp(CeilDiv(positions, count), Kernels<T>().lanes), 1);
    cut.panels = CeilDiv(positions, cut.panel_lanes);
    const int64_t panels = gather_.g * cut.panels;
    const int64_t parts = CeilDiv(4 * threads, std::max<int64_t>(panels, 1));
    cut.part_channels = std::max(RoundUp(CeilDiv(gather_.channels, parts), kRowBlock),
                                 std::min<int64_t>(gather_.channels, 64));
    if (grouped_) cut.part_channels = std::min(cut.part_channels, GroupSums());
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

// If memory is short, panels get narrower, then fewer steps are packed at once, and at last
// threads share one slot of scratch.
template <class T>
void DirectGather<T>::SizeScratch(int64_t limit) {
  for (int64_t number = 0; number < gather_.Phases(); ++number) {
    const Phase phase = gather_.PhaseAt(number);
    const auto cols = static_cast<int64_t>(phase.axis[2]->taps.size());
    if (phase.Taps() == 0) continue;
    const int64_t rows = std::min(gather_.reduced * phase.Taps() / cols, BlockRowsOf(cols));
    block_rows_ = std::max(block_rows_, rows);
    block_steps_ = std::max(block_steps_, rows * std::min(cols, kTapBlock));
  }
  packed_steps_ = block_steps_;
  const int64_t least = Kernels<T>().lanes;
  const auto passes = [&] { return slots_ * SlotBytes() > limit; };
  while (passes() && lanes_ > least) lanes_ = RoundUp(lanes_ / 2, least);
  while (passes() && packed_steps_ > kLeastSteps) packed_steps_ /= 2;
  if (passes()) slots_ = 1;
  while (passes() && packed_steps_ > 1) packed_steps_ /= 2;
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
  // The last phase that begins at or before the unit holds it. A phase without units begins where
  // the next one does.
  const auto next =
      std::upper_bound(cuts_.begin(), cuts_.end(), unit,
                       [](int64_t number, const Cut& one) { return number < one.first_unit; });
  const Cut& cut = *std::prev(next);
  const Phase phase = gather_.PhaseAt(std::distance(cuts_.begin(), next) - 1);
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
  panel.rows = reinterpret_cast<ChainRow*>(scratch + PackedBytes());
  if (grouped_) panel.group = reinterpret_cast<T*>(scratch + PackedBytes() + RowBytes());
  CutIntoSegments(phase, panel.first, panel.lanes, &panel.segments);
  RunPanel(&panel, args.accumulate);
}

// The chain's rows are (reduced channel, tap on D, tap on H), its columns the taps on W.
template <class T>
void DirectGather<T>::RunPanel(Panel* panel, bool accumulate) const {
  const auto& axis = panel->phase.axis;
  const auto channel_rows =
      axis[2]->taps.empty() ? 0 : static_cast<int64_t>(axis[0]->taps.size() * axis[1]->taps.size());
  const int64_t rows = gather_.reduced * channel_rows;
  if (panel->group == nullptr) {
    const Into first = !accumulate ? Into::kStore : one_block_ ? Into::kContinue : Into::kAdd;
    return RunGroup(panel, 0, rows, first);
  }
  const int64_t group_rows = std::max<int64_t>(group_channels_ * channel_rows, 1);
  int64_t row = 0;
  do {
    const int64_t end = std::min(row + group_rows, rows);
    RunGroup(panel, row, end, Into::kStore);
    if (accumulate || row > 0) {
      PutGroup<Moves::kAdd>(*panel);
    } else {
      PutGroup<Moves::kStore>(*panel);
    }
    row = end;
  } while (row < rows);
}

// The blocks of rows [begin, end). Without rows, the sums of one empty block are zero.
template <class T>
void DirectGather<T>::RunGroup(Panel* panel, int64_t begin, int64_t end, Into first) const {
  const auto cols = static_cast<int64_t>(panel->phase.axis[2]->taps.size());
  const int64_t step = BlockRowsOf(std::max<int64_t>(cols, 1));
  Into into = first;
  int64_t row = begin;
  do {
    int64_t col = 0;
    do {
      const Block block{row, std::min(row + step, end), col, std::min(col + kTapBlock, cols)};
      if (InPieces() && row < end && cols > 0) {
        RunPieces(panel, block, into);
      } else {
        Pack(panel, block);
        RunBlock(*panel, ChainOf(*panel, block), into);
      }
      into = Into::kAdd;
      col = block.col_end;
    } while (col < cols);
    row += step;
  } while (row < end);
}

// A block whose steps are not packed all at once.
template <class T>
void DirectGather<T>::RunPieces(Panel* panel, const Block& block, Into into) const {
  alignas(64) T sums[kRowBlock * kPanelLanes<T>];
  for (int64_t m = panel->channel_begin; m < panel->channel_end; m += kRowBlock) {
    const int64_t count = std::min(kRowBlock, panel->channel_end - m);
    if (panel->group != nullptr) {  // of one such row of channels
      PackPieces(panel, block, m, count, Into::kStore, sums);
      for (int64_t i = 0; i < count * panel->padded; ++i) {
        T* const sum = panel->group + i;
        *sum = into == Into::kAdd ? *sum + sums[i] : sums[i];
      }
      continue;
    }
    const bool goes_on = into == Into::kContinue;
    if (goes_on) Exchange<Moves::kLoad>(*panel, m, count, sums, panel->padded);
    PackPieces(panel, block, m, count, goes_on ? into : Into::kStore, sums);
    if (into == Into::kAdd) {
      Exchange<Moves::kAdd>(*panel, m, count, sums, panel->padded);
    } else {
      Exchange<Moves::kStore>(*panel, m, count, sums, panel->padded);
    }
  }
}

template <class T>
void DirectGather<T>::PackPieces(Panel* panel, const Block& block, int64_t channel, int64_t count,
                                 Into first, T* sums) const {
  const int64_t cols = std::max<int64_t>(block.col_end - block.col_begin, 1);
  const int64_t rows = std::max<int64_t>(packed_steps_ / cols, 1);
  const int64_t step = std::min(packed_steps_, cols);
  Into into = first;
  for (int64_t row = block.begin; row < block.end; row += rows) {
    for (int64_t col = block.col_begin; col < block.col_end; col += step) {
      const Block piece{row, std::min(row + rows, block.end), col,
                        std::min(col + step, block.col_end)};
      Pack(panel, piece);
      Chain<T> chain = ChainOf(*panel, piece);
      chain.a += channel;
      RunChain(chain, sums, panel->padded, count, panel->lanes, into);
      into = Into::kContinue;
    }
  }
}

template <class T>
void DirectGather<T>::Pack(Panel* panel, const Block& block) const {
  const auto& axis = panel->phase.axis;
  const auto ds = static_cast<int64_t>(axis[0]->taps.size());
  const auto hs = static_cast<int64_t>(axis[1]->taps.size());
  T* to = panel->packed;
  for (int64_t row = block.begin; row < block.end; ++row) {
    const int64_t c = row / (ds * hs);
    const Tap& d = axis[0]->taps[static_cast<size_t>(row / hs % ds)];
    const Tap& h = axis[1]->taps[static_cast<size_t>(row % hs)];
    const int64_t tap_row = (c * gather_.filter[0] + d.index) * gather_.filter[1] + h.index;
    const int64_t first =
        tap_row * gather_.filter[2] + axis[2]->taps[static_cast<size_t>(block.col_begin)].index;
    panel->rows[row - block.begin] = {first * gather_.channels, to - panel->packed};
    for (int64_t col = block.col_begin; col < block.col_end; ++col) {
      const Tap& w = axis[2]->taps[static_cast<size_t>(col)];
      PackStep(gather_, panel->phase, panel->segments, panel->source + c * SourceSize(), {d, h, w},
               to);
      std::fill(to + panel->lanes, to + panel->padded, T(0));
      to += panel->padded;
    }
  }
}

template <class T>
Chain<T> DirectGather<T>::ChainOf(const Panel& panel, const Block& block) const {
  const std::vector<Tap>& taps = panel.phase.axis[2]->taps;
  Chain<T> chain;
  chain.a = panel.weights;
  chain.b = panel.packed;
  chain.row = panel.rows;
  chain.rows = block.end - block.begin;
  chain.cols = block.col_end - block.col_begin;
  chain.a_col = gather_.channels * (taps.size() > 1 ? taps[1].index - taps[0].index : 1);
  chain.b_col = panel.padded;
  // Where every tap of the filter takes part, all rows are one.
  if (panel.phase.Taps() == FilterSize() && chain.rows > 1) {
    chain.cols *= chain.rows;
    chain.rows = 1;
  }
  return chain;
}

// Sums go straight to the output where whole vectors of it are the panel's, else by way of a
// small array.
template <class T>
void DirectGather<T>::RunBlock(const Panel& panel, const Chain<T>& chain, Into into) const {
  const int64_t image = panel.segments.empty() ? 0 : panel.segments.front().n;
  const bool straight =
      panel.phase.Contiguous() && panel.lanes == panel.padded && image == panel.segments.back().n;
  Chain<T> part = chain;
  part.a += panel.channel_begin;
  const int64_t channels = panel.channel_end - panel.channel_begin;
  if (panel.group != nullptr) {
    return RunChain(part, panel.group, panel.padded, channels, panel.lanes, into);
  }
  if (straight) {
    T* const target = panel.target + image * TargetImage() + panel.channel_begin * TargetSize() +
                      panel.first - image * panel.phase.Positions();
    return RunChain(part, target, TargetSize(), channels, panel.lanes, into);
  }
  alignas(64) T sums[kRowBlock * kPanelLanes<T>];
  for (int64_t m = panel.channel_begin; m < panel.channel_end; m += kRowBlock) {
    const int64_t count = std::min(kRowBlock, panel.channel_end - m);
    if (into != Into::kStore) Exchange<Moves::kLoad>(panel, m, count, sums, kPanelLanes<T>);
    RunChain(part, sums, kPanelLanes<T>, count, panel.lanes, into);
    Exchange<Moves::kStore>(panel, m, count, sums, kPanelLanes<T>);
    part.a += kRowBlock;
  }
}

// Moves the panel's sums of `count` channels between the output and `sums`, whose channels are
// `step` elements apart.
template <class T>
template <DirectGather<T>::Moves kMoves>
void DirectGather<T>::Exchange(const Panel& panel, int64_t channel, int64_t count, T* sums,
                               int64_t step) const {
  const auto& axis = panel.phase.axis;
  const auto place = [&](int d, int64_t i) { return axis[d]->out_begin + i * axis[d]->out_step; };
  const int64_t out_step = axis[2]->out_step;
  for (int64_t m = 0; m < count; ++m) {
    T* const plane = panel.target + (channel + m) * TargetSize();
    for (const Segment& segment : panel.segments) {
      T* const out =
          plane + segment.n * TargetImage() +
          (place(0, segment.d) * gather_.target[1] + place(1, segment.h)) * gather_.target[2] +
          place(2, segment.w);
      T* const sum = sums + m * step + segment.lane;
      for (int64_t i = 0; i < segment.count; ++i) {
        T& element = out[i * out_step];
        if constexpr (kMoves == Moves::kLoad) sum[i] = element;
        if constexpr (kMoves == Moves::kStore) element = sum[i];
        if constexpr (kMoves == Moves::kAdd) element += sum[i];
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
