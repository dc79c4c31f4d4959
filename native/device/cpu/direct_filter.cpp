// Backward filter of the direct engine.
//
// x and dy lie channels-last, so that both factors of a step are runs of channels: one side is
// spread over the lanes of vectors, the other is taken element by element. Positions are summed in
// blocks, see geom/sum_blocks.hpp: in float within a block, and in double over the blocks. Blocks
// are walked in bands small enough that x and dy of one band stay in the second cache while all
// gradients are summed over it.
#include <algorithm>
#include <vector>

#include "device/cpu/direct.hpp"
#include "device/cpu/layouts.hpp"
#include "device/cpu/microkernel.hpp"
#include "geom/sum_blocks.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kBandBytes = 256 << 10;  // of x and dy in one band
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

// Blocks are numbered in the order of the sum.
Box BoxOf(const Grid& grid, int64_t number) {
  Box box;
  for (size_t i = grid.count.size(); i-- > 0;) {
    const int64_t begin = number % grid.count[i] * grid.block[i] - grid.first[i];
    number /= grid.count[i];
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

template <class T>
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
  void Clear(const Unit& unit, double* dw) const;
  void RunUnit(const RunArgs& args, const Unit& unit, const Grid& grid, int64_t begin,
               int64_t end) const;
  void RunBlock(const RunArgs& args, const Unit& unit, const Box& box, double* sums,
                int64_t step) const;
  Chain<T> ChainOf(const RunArgs& args, const Unit& unit, const Box& box, ChainRow* rows) const;
  int64_t Offset(const Unit& unit) const;

  const ConvShape shape_;
  const Lanes lanes_;
  int64_t rows_ = 1, lane_count_ = 1, groups_ = 1;  // channels on each side, and groups left
};

template <class T>
DirectFilter<T>::DirectFilter(const TileOp& op) : shape_(op.shape), lanes_(ChooseLanes(op.shape)) {
  engine_ = DirectInfo().name;
  properties_ = DirectInfo().properties;
  const DType dtype = AccumulatorOf(op.dtype);
  const auto dims = [&](Operand operand) { return op.shape.DimsOf(operand, op.direction); };
  layout_[Index(Operand::kX)] = PlainLayout(dtype, dims(Operand::kX), kChannelsLastOrder, kSlack);
  layout_[Index(Operand::kY)] = PlainLayout(dtype, dims(Operand::kY), kChannelsLastOrder, kSlack);
  layout_[Index(Operand::kW)] =
      PlainLayout(DType::kFloat64, dims(Operand::kW), FilterOrder(lanes_));
  rows_ = lanes_ == Lanes::kOutput ? shape_.c : lanes_ == Lanes::kInput ? shape_.k : 1;
  lane_count_ = lanes_ == Lanes::kOutput ? shape_.k : lanes_ == Lanes::kInput ? shape_.c : shape_.g;
  groups_ = lanes_ == Lanes::kGroups ? 1 : shape_.g;
}

template <class T>
int64_t DirectFilter<T>::Units() const {
  return groups_ * CeilDiv(rows_, kRowBlock) * shape_.filter[0] * shape_.filter[1] *
         shape_.filter[2] * CeilDiv(lane_count_, kColumnLanes<T>);
}

template <class T>
DirectFilter<T>::Unit DirectFilter<T>::UnitAt(int64_t number) const {
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
template <class T>
int64_t DirectFilter<T>::BandBlocks() const {
  const int64_t position_bytes = shape_.g *
                                 (shape_.k + shape_.c * shape_.stride[1] * shape_.stride[2]) *
                                 static_cast<int64_t>(sizeof(T));
  const PixelArray block = PixelBlockOf(shape_);
  const int64_t block_bytes = block[0] * block[1] * block[2] * block[3] * position_bytes;
  return std::max<int64_t>(kBandBytes / std::max<int64_t>(block_bytes, 1), 1);
}

template <class T>
Status DirectFilter<T>::Run(const RunArgs& args, Parallel& parallel) {
  const Grid grid = GridOf(shape_, args.origin);
  const int64_t blocks = grid.Blocks(), band = BandBlocks();
  auto* const dw = static_cast<double*>(args.tile[Index(Operand::kW)]);
  // Every piece reads all of x and dy, so there are few pieces.
  const int64_t grain = CeilDiv(Units(), 2 * parallel.threads());
  parallel.For(Units(), grain, [&](int64_t begin, int64_t end) {
    std::vector<Unit> units;
    for (int64_t i = begin; i < end; ++i) units.push_back(UnitAt(i));
    if (!args.accumulate) {
      for (const Unit& unit : units) Clear(unit, dw);
    }
    for (int64_t first = 0; first < blocks; first += band) {
      for (const Unit& unit : units) {
        RunUnit(args, unit, grid, first, std::min(first + band, blocks));
      }
    }
  });
  return {};
}

// Elements from the tile's first to the unit's first gradient.
template <class T>
int64_t DirectFilter<T>::Offset(const Unit& unit) const {
  const Dims& stride = layout(Operand::kW).stride;
  int64_t offset = unit.g * stride[0];
  for (int d = 0; d < 3; ++d) offset += unit.tap[d] * stride[3 + d];
  const int row_dim = lanes_ == Lanes::kOutput ? 2 : 1;
  return offset + unit.lane + (lanes_ == Lanes::kGroups ? 0 : unit.row * stride[row_dim]);
}

template <class T>
void DirectFilter<T>::Clear(const Unit& unit, double* dw) const {
  const int64_t step = layout(Operand::kW).stride[lanes_ == Lanes::kOutput ? 2 : 1];
  for (int64_t m = 0; m < unit.rows; ++m) {
    std::fill_n(dw + Offset(unit) + m * step, unit.lanes, 0.0);
  }
}

// The positions of a block as rows of steps; `a` is the side of the rows, `b` that of the lanes.
template <class T>
Chain<T> DirectFilter<T>::ChainOf(const RunArgs& args, const Unit& unit, const Box& box,
                                  ChainRow* rows) const {
  const Dims& xs = layout(Operand::kX).stride;
  const Dims& ys = layout(Operand::kY).stride;
  const auto* x = static_cast<const T*>(args.tile[Index(Operand::kX)]);
  const auto* dy = static_cast<const T*>(args.tile[Index(Operand::kY)]);
  const auto in = [&](int d, int64_t out) {
    return out * shape_.stride[d] + unit.tap[d] * shape_.dilation[d];
  };
  x += unit.g * xs[1] + in(2, box.begin[3]) * xs[5];
  dy += unit.g * ys[1] + box.begin[3] * ys[5];
  const bool x_rows = lanes_ != Lanes::kInput;
  Chain<T> chain;
  chain.row = rows;
  chain.cols = box.end[3] - box.begin[3];
  for (int64_t n = box.begin[0]; n < box.end[0]; ++n) {
    for (int64_t o = box.begin[1]; o < box.end[1]; ++o) {
      const int64_t x_plane = n * xs[0] + in(0, o) * xs[3], y_plane = n * ys[0] + o * ys[3];
      for (int64_t p = box.begin[2]; p < box.end[2]; ++p) {
        const int64_t x_row = x_plane + in(1, p) * xs[4], y_row = y_plane + p * ys[4];
        rows[chain.rows++] = x_rows ? ChainRow{x_row, y_row} : ChainRow{y_row, x_row};
      }
    }
  }
  const int64_t x_col = shape_.stride[2] * xs[5], y_col = ys[5];
  chain.a = (x_rows ? x : dy) + (lanes_ == Lanes::kGroups ? unit.lane : unit.row);
  chain.b = (x_rows ? dy : x) + unit.lane;
  chain.a_col = x_rows ? x_col : y_col;
  chain.b_col = x_rows ? y_col : x_col;
  return chain;
}

// In double nothing is gained by sums of blocks, so chains continue.
template <class T>
void DirectFilter<T>::RunBlock(const RunArgs& args, const Unit& unit, const Box& box, double* sums,
                               int64_t step) const {
  constexpr Into kInto = std::is_same_v<T, double> ? Into::kContinue : Into::kAdd;
  ChainRow rows[kPixelBlock];
  const Chain<T> chain = ChainOf(args, unit, box, rows);
  if (lanes_ == Lanes::kGroups) {
    RunPairs(chain, sums, unit.lanes, kInto);
  } else {
    RunChain(chain, sums, step, unit.rows, unit.lanes, kInto);
  }
}

// Sums the blocks [begin, end): whole vectors of gradients in place, others by way of a small
// array.
template <class T>
void DirectFilter<T>::RunUnit(const RunArgs& args, const Unit& unit, const Grid& grid,
                              int64_t begin, int64_t end) const {
  const int64_t step = layout(Operand::kW).stride[lanes_ == Lanes::kOutput ? 2 : 1];
  double* const dw = static_cast<double*>(args.tile[Index(Operand::kW)]) + Offset(unit);
  const auto run = [&](double* sums, int64_t sums_step) {
    for (int64_t i = begin; i < end; ++i) RunBlock(args, unit, BoxOf(grid, i), sums, sums_step);
  };
  if (unit.lanes % Kernels<T>().lanes == 0) return run(dw, step);
  alignas(64) double sums[kRowBlock * kColumnLanes<T>] = {};
  for (int64_t m = 0; m < unit.rows; ++m) {
    std::copy_n(dw + m * step, unit.lanes, sums + m * kColumnLanes<T>);
  }
  run(sums, kColumnLanes<T>);
  for (int64_t m = 0; m < unit.rows; ++m) {
    std::copy_n(sums + m * kColumnLanes<T>, unit.lanes, dw + m * step);
  }
}

}  // namespace

Result<std::unique_ptr<CpuExecutable>> PrepareDirectFilter(const TileOp& op) {
  if (op.dtype == DType::kFloat64) {
    return std::unique_ptr<CpuExecutable>(std::make_unique<DirectFilter<double>>(op));
  }
  return std::unique_ptr<CpuExecutable>(std::make_unique<DirectFilter<float>>(op));
}

}  // namespace oocdnn::cpu
