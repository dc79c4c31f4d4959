// Backward filter of the direct engine.
//
// x and dy lie channels-last, so that both factors of a step are runs of channels: one side is
// spread over the lanes of vectors, the other is taken element by element. Positions are summed in
// blocks, see geom/sum_blocks.hpp: in float within a block, and in double over the blocks. Blocks
// are walked in bands small enough that x and dy of one band stay in the second cache while all
// gradients are summed over it.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/cpu/direct.hpp"
#include "device/cpu/microkernel.hpp"
#include "device/layouts.hpp"
#include "geom/sum_blocks.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kBandBytes = 512 << 10;  // of x and dy in one band
constexpr int64_t kRowBlock = 8;

// Lanes may be read past the last channel of the last position.
constexpr int64_t kSlack = 64;

// How the two channel axes are used. Depthwise filters have one channel each per group; there the
// groups themselves are the lanes.
enum class Lanes { kOutput, kInput, kGroups };

// The grid of blocks over a tile: on each of N, D, H, W the tile begins `first` positions into a
// block, and meets `count` blocks.
struct Grid {
  PixelArray extent{}, block{}, first{}, count{};
  [[nodiscard]] int64_t Blocks() const { return count[0] * count[1] * count[2] * count[3]; }
};

// The positions of one block, on N, D, H, W.
struct Box {
  PixelArray begin{}, end{};
};

Grid GridOf(const ConvShape& shape, const Spatial& origin) {
  Grid grid;
  grid.extent = {shape.n, shape.out[0], shape.out[1], shape.out[2]};
  grid.block = PixelBlockOf(shape);
  for (size_t i = 0; i < grid.count.size(); ++i) {
    if (i > 0) grid.first[i] = origin[i - 1] % grid.block[i];
    const bool empty = grid.extent[i] == 0;
    grid.count[i] = empty ? 0 : CeilDiv(grid.first[i] + grid.extent[i], grid.block[i]);
  }
  return grid;
}

// The indices of a block on N, D, H, W. Blocks are numbered in the order of the sum.
PixelArray PlaceOf(const Grid& grid, int64_t number) {
  PixelArray place{};
  for (size_t i = grid.count.size(); i-- > 0;) {
    place[i] = number % grid.count[i];
    number /= grid.count[i];
  }
  return place;
}

// The next block, in the order of the sum.
void Advance(const Grid& grid, PixelArray* place) {
  for (size_t i = grid.count.size(); i-- > 0;) {
    if (++(*place)[i] < grid.count[i]) return;
    (*place)[i] = 0;
  }
}

Box BoxAt(const Grid& grid, const PixelArray& place) {
  Box box;
  for (size_t i = 0; i < place.size(); ++i) {
    const int64_t begin = place[i] * grid.block[i] - grid.first[i];
    box.begin[i] = std::max<int64_t>(begin, 0);
    box.end[i] = std::min(begin + grid.block[i], grid.extent[i]);
  }
  return box;
}

Lanes ChooseLanes(const ConvShape& shape) {
  if (IsDepthwise(shape)) return Lanes::kGroups;
  // The side that wastes fewer lanes of 16; k where both are as good.
  const auto share = [](int64_t channels) {
    return static_cast<double>(channels) /
           static_cast<double>(std::max<int64_t>(RoundUp(channels, 16), 1));
  };
  return share(shape.c) > share(shape.k) ? Lanes::kInput : Lanes::kOutput;
}

// G K C T R S by lane choice: what is spread over lanes is fastest.
std::array<int, 6> FilterOrder(Lanes lanes) {
  switch (lanes) {
    case Lanes::kOutput: return kOutputFastestOrder;
    case Lanes::kInput: return kInputFastestOrder;
    case Lanes::kGroups: break;
  }
  return kGroupFastestOrder;
}

// `Sum` is the type of the gradients' tile, see NeedsWideSums.
template <class T, class Sum>
class DirectFilter final : public CpuExecutable {
 public:
  explicit DirectFilter(const TileOp& op);
  Status Run(const RunArgs& args, Parallel& parallel) override;

 private:
  // The gradients of one group, filter tap, block of rows and panel of lanes.
  struct Unit {
    int64_t g, row, rows, lane, lanes;
    Spatial tap;
  };
  Unit UnitAt(int64_t number) const;
  int64_t Units() const;
  int64_t BandBlocks() const;
  // The steps of the blocks of a band, which are the same for all units but for where they begin.
  struct Band {
    std::vector<ChainRow> rows;  // `a` of x, `b` of dy
    std::vector<size_t> ends;    // of the blocks, among the rows
    std::vector<int64_t> cols;   // of each block
    bool enters = false;         // the sums begin with its first block
  };
  void Clear(const Unit& unit, Sum* dw) const;
  void TakeSteps(const Grid& grid, int64_t begin, int64_t end, Band* band) const;
  void RunUnit(const RunArgs& args, const Unit& unit, const Band& band) const;
  void RunBlocks(const RunArgs& args, const Unit& unit, const Band& band, Sum* sums,
                 int64_t step) const;
  int64_t Offset(const Unit& unit) const;

  const ConvShape shape_;
  const Lanes lanes_;
  int64_t rows_ = 1, lane_count_ = 1, groups_ = 1;  // channels on each side, and groups left
};

template <class T, class Sum>
DirectFilter<T, Sum>::DirectFilter(const TileOp& op)
    : shape_(op.shape), lanes_(ChooseLanes(op.shape)) {
  engine_ = DirectInfo().name;
  properties_ = DirectInfo().properties;
  const DType dtype = AccumulatorOf(op.dtype);
  const auto dims = [&](Operand operand) { return op.shape.DimsOf(operand, op.direction); };
  layout_[Index(Operand::kX)] = PlainLayout(dtype, dims(Operand::kX), kChannelsLastOrder, kSlack);
  layout_[Index(Operand::kY)] = PlainLayout(dtype, dims(Operand::kY), kChannelsLastOrder, kSlack);
  layout_[Index(Operand::kW)] =
      PlainLayout(std::is_same_v<Sum, double> ? DType::kFloat64 : DType::kFloat32,
                  dims(Operand::kW), FilterOrder(lanes_));
  rows_ = lanes_ == Lanes::kOutput ? shape_.c : lanes_ == Lanes::kInput ? shape_.k : 1;
  lane_count_ = lanes_ == Lanes::kOutput ? shape_.k : lanes_ == Lanes::kInput ? shape_.c : shape_.g;
  groups_ = lanes_ == Lanes::kGroups ? 1 : shape_.g;
}

template <class T, class Sum>
int64_t DirectFilter<T, Sum>::Units() const {
  return groups_ * CeilDiv(rows_, kRowBlock) * shape_.filter[0] * shape_.filter[1] *
         shape_.filter[2] * CeilDiv(lane_count_, kColumnLanes<T>);
}

template <class T, class Sum>
DirectFilter<T, Sum>::Unit DirectFilter<T, Sum>::UnitAt(int64_t number) const {
  const auto take = [&](int64_t extent) {
    const int64_t index = number % extent;
    number /= extent;
    return index;
  };
  Unit unit{};
  unit.lane = take(CeilDiv(lane_count_, kColumnLanes<T>)) * kColumnLanes<T>;
  unit.lanes = std::min<int64_t>(kColumnLanes<T>, lane_count_ - unit.lane);
  for (int d = 2; d >= 0; --d) unit.tap[d] = take(shape_.filter[d]);
  unit.row = take(CeilDiv(rows_, kRowBlock)) * kRowBlock;
  unit.rows = std::min(kRowBlock, rows_ - unit.row);
  unit.g = number;
  return unit;
}

// Blocks of a band: as many as the second cache holds.
template <class T, class Sum>
int64_t DirectFilter<T, Sum>::BandBlocks() const {
  const int64_t position_bytes = shape_.g *
                                 (shape_.k + shape_.c * shape_.stride[1] * shape_.stride[2]) *
                                 static_cast<int64_t>(sizeof(T));
  const PixelArray block = PixelBlockOf(shape_);
  const int64_t block_bytes = block[0] * block[1] * block[2] * block[3] * position_bytes;
  return std::max<int64_t>(kBandBytes / std::max<int64_t>(block_bytes, 1), 1);
}

template <class T, class Sum>
Status DirectFilter<T, Sum>::Run(const RunArgs& args, Parallel& parallel) {
  const Grid grid = GridOf(shape_, args.origin);
  const int64_t blocks = grid.Blocks(), step = BandBlocks();
  auto* const dw = static_cast<Sum*>(args.tile[Index(Operand::kW)]);
  // Every piece reads all of x and dy, so there are few pieces.
  const int64_t grain = CeilDiv(Units(), 2 * parallel.threads());
  parallel.For(Units(), grain, [&](int64_t begin, int64_t end) {
    std::vector<Unit> units;
    for (int64_t i = begin; i < end; ++i) units.push_back(UnitAt(i));
    if (!args.accumulate && blocks == 0) {
      for (const Unit& unit : units) Clear(unit, dw);
    }
    Band band;
    for (int64_t first = 0; first < blocks; first += step) {
      TakeSteps(grid, first, std::min(first + step, blocks), &band);
      band.enters = first == 0 && !args.accumulate;
      for (const Unit& unit : units) RunUnit(args, unit, band);
    }
  });
  return {};
}

// Elements from the tile's first to the unit's first gradient.
template <class T, class Sum>
int64_t DirectFilter<T, Sum>::Offset(const Unit& unit) const {
  const Dims& stride = layout(Operand::kW).stride;
  int64_t offset = unit.g * stride[0];
  for (int d = 0; d < 3; ++d) offset += unit.tap[d] * stride[3 + d];
  const int row_dim = lanes_ == Lanes::kOutput ? 2 : 1;
  return offset + unit.lane + (lanes_ == Lanes::kGroups ? 0 : unit.row * stride[row_dim]);
}

template <class T, class Sum>
void DirectFilter<T, Sum>::Clear(const Unit& unit, Sum* dw) const {
  const int64_t step = layout(Operand::kW).stride[lanes_ == Lanes::kOutput ? 2 : 1];
  for (int64_t m = 0; m < unit.rows; ++m) {
    std::fill_n(dw + Offset(unit) + m * step, unit.lanes, Sum(0));
  }
}

// The positions of the blocks [begin, end) as rows of steps.
template <class T, class Sum>
void DirectFilter<T, Sum>::TakeSteps(const Grid& grid, int64_t begin, int64_t end,
                                     Band* band) const {
  const Dims& xs = layout(Operand::kX).stride;
  const Dims& ys = layout(Operand::kY).stride;
  const Spatial& stride = shape_.stride;
  band->rows.clear();
  band->ends.clear();
  band->cols.clear();
  PixelArray place = PlaceOf(grid, begin);
  for (int64_t number = begin; number < end; ++number, Advance(grid, &place)) {
    const Box box = BoxAt(grid, place);
    const int64_t q = box.begin[3];
    for (int64_t n = box.begin[0]; n < box.end[0]; ++n) {
      for (int64_t o = box.begin[1]; o < box.end[1]; ++o) {
        const int64_t x = n * xs[0] + o * stride[0] * xs[3] + q * stride[2] * xs[5];
        const int64_t y = n * ys[0] + o * ys[3] + q * ys[5];
        for (int64_t p = box.begin[2]; p < box.end[2]; ++p) {
          band->rows.push_back({x + p * stride[1] * xs[4], y + p * ys[4]});
        }
      }
    }
    band->ends.push_back(band->rows.size());
    band->cols.push_back(box.end[3] - q);
  }
  if (lanes_ == Lanes::kInput) {
    for (ChainRow& row : band->rows) std::swap(row.a, row.b);
  }
}

// Block by block; `a` is the side of the rows, `b` that of the lanes. In double nothing is gained
// by sums of blocks, so chains continue.
template <class T, class Sum>
void DirectFilter<T, Sum>::RunBlocks(const RunArgs& args, const Unit& unit, const Band& band,
                                     Sum* sums, int64_t step) const {
  const Dims& xs = layout(Operand::kX).stride;
  const Dims& ys = layout(Operand::kY).stride;
  const auto* x = static_cast<const T*>(args.tile[Index(Operand::kX)]) + unit.g * xs[1];
  const auto* dy = static_cast<const T*>(args.tile[Index(Operand::kY)]) + unit.g * ys[1];
  for (int d = 0; d < 3; ++d) x += unit.tap[d] * shape_.dilation[d] * xs[3 + d];
  const bool x_rows = lanes_ != Lanes::kInput;
  const int64_t x_col = shape_.stride[2] * xs[5], y_col = ys[5];
  Chain<T> chain;
  chain.a = (x_rows ? x : dy) + (lanes_ == Lanes::kGroups ? unit.lane : unit.row);
  chain.b = (x_rows ? dy : x) + unit.lane;
  chain.a_col = x_rows ? x_col : y_col;
  chain.b_col = x_rows ? y_col : x_col;
  constexpr Into kNext = std::is_same_v<T, double> ? Into::kContinue : Into::kAdd;
  Into into = band.enters ? Into::kStore : kNext;
  size_t begin = 0;
  for (size_t i = 0; i < band.ends.size(); ++i) {
    chain.row = band.rows.data() + begin;
    chain.rows = static_cast<int64_t>(band.ends[i] - begin);
    chain.cols = band.cols[i];
    if (lanes_ == Lanes::kGroups) {
      RunPairs(chain, sums, unit.lanes, into);
    } else {
      RunChain(chain, sums, step, unit.rows, unit.lanes, into);
    }
    into = kNext;
    begin = band.ends[i];
  }
}

// Whole vectors of gradients are summed in place, others by way of a small array.
template <class T, class Sum>
void DirectFilter<T, Sum>::RunUnit(const RunArgs& args, const Unit& unit, const Band& band) const {
  const int64_t step = layout(Operand::kW).stride[lanes_ == Lanes::kOutput ? 2 : 1];
  Sum* const dw = static_cast<Sum*>(args.tile[Index(Operand::kW)]) + Offset(unit);
  if (unit.lanes % Kernels<T>().lanes == 0) return RunBlocks(args, unit, band, dw, step);
  alignas(64) Sum sums[kRowBlock * kColumnLanes<T>] = {};
  for (int64_t m = 0; m < unit.rows && !band.enters; ++m) {
    std::copy_n(dw + m * step, unit.lanes, sums + m * kColumnLanes<T>);
  }
  RunBlocks(args, unit, band, sums, kColumnLanes<T>);
  for (int64_t m = 0; m < unit.rows; ++m) {
    std::copy_n(sums + m * kColumnLanes<T>, unit.lanes, dw + m * step);
  }
}

}  // namespace

Result<std::unique_ptr<CpuExecutable>> PrepareDirectFilter(const TileOp& op) {
  if (op.dtype == DType::kFloat64) {
    return std::unique_ptr<CpuExecutable>(std::make_unique<DirectFilter<double, double>>(op));
  }
  if (NeedsWideSums(op.shape, op.accumulates)) {
    return std::unique_ptr<CpuExecutable>(std::make_unique<DirectFilter<float, double>>(op));
  }
  return std::unique_ptr<CpuExecutable>(std::make_unique<DirectFilter<float, float>>(op));
}

}  // namespace oocdnn::cpu
