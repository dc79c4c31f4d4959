// Boxes of outputs for forward and backward data, and cells of pixels for filter gradients, such
// that their inputs fit in shared memory and all multiprocessors have work.
#include "device/cuda/depthwise.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/direct_args.hpp"
#include "device/cuda/engine.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kWarp = 32, kLeastThreads = 128, kMostThreads = 256;
// Bytes of shared memory: that a thread block can have, that a box shall have, and that several
// planes together shall have. So a multiprocessor has room for four of them.
constexpr int64_t kMostShared = 48 << 10, kBoxShared = 36 << 10, kPlanesShared = 24 << 10;
// Work of a thread block, in items of its threads.
constexpr int64_t kMostItems = 1024, kFewItems = 640;
constexpr int64_t kMostWidth = 256;  // outputs along W
constexpr int kBlocksPerMultiprocessor = 4;

int VectorOf(int64_t width, DType dtype) {
  int vector = static_cast<int>(16 / SizeOf(dtype));
  while (width % vector != 0) vector /= 2;
  return vector;
}

StagedTiles StagedOf(int64_t columns, int vector, const std::array<int64_t, 3>& rows) {
  StagedTiles tiles{};
  tiles.vector = vector;
  tiles.vectors = static_cast<int>(CeilDiv(columns + vector - 1, vector));
  tiles.pitch = tiles.vectors * vector | 1;
  tiles.elements = tiles.pitch;
  for (size_t i = 0; i < rows.size(); ++i) {
    tiles.by[i] = MakeDivisor(rows[i]);
    tiles.elements = static_cast<int>(std::min<int64_t>(Mul(tiles.elements, rows[i]), INT32_MAX));
  }
  tiles.across = MakeDivisor(CeilDiv(tiles.vectors, kWarp / vector));
  return tiles;
}

void SetTiles(int64_t count, StagedTiles* tiles) {
  const int64_t rows = tiles->elements / tiles->pitch;
  tiles->rows = static_cast<unsigned>(count * rows);
}

// As many threads as leave the fewest idle in the last round of their work.
int ThreadsFor(int64_t items) {
  int best = kMostThreads;
  for (int threads = kMostThreads; threads >= kLeastThreads; threads -= kWarp) {
    if (RoundUp(items, threads) < RoundUp(items, best)) best = threads;
  }
  return best;
}

void SetPadding(const ConvShape& shape, int (&pad)[3]) {
  for (int d = 0; d < 3; ++d) pad[d] = static_cast<int>(shape.pad_before[d]);
}

Status TooMuch(const char* what, int64_t bytes) {
  return Error(Code::kUnsupported, "%s would need %lld bytes of shared memory, and there are %lld",
               what, static_cast<long long>(bytes), static_cast<long long>(kMostShared));
}

// The boxes of forward and backward data.
class Boxes {
 public:
  explicit Boxes(const TileOp& op)
      : op_(op),
        forward_(op.direction == Direction::kForward),
        target_(forward_ ? op.shape.out : op.shape.in),
        source_width_(forward_ ? op.shape.in[2] : op.shape.out[2]),
        made_(!forward_ && op.shape.stride[2] > 1 ? 1 : kDepthwiseOutputs) {}

  [[nodiscard]] int made() const { return made_; }
  [[nodiscard]] const Spatial& box() const { return box_; }
  [[nodiscard]] int64_t reduced() const { return forward_ ? 1 : op_.shape.k; }
  [[nodiscard]] int64_t planes() const {
    return op_.shape.n * op_.shape.g * (forward_ ? op_.shape.k : 1);
  }
  [[nodiscard]] int64_t count() const {
    int64_t count = 1;
    for (int d = 0; d < 3; ++d) count *= CeilDiv(target_[d], box_[d]);
    return count;
  }
  [[nodiscard]] int64_t outputs() const { return CeilDiv(box_[2], made_); }
  [[nodiscard]] int64_t items() const { return box_[0] * box_[1] * outputs(); }

  [[nodiscard]] StagedTiles Staged() const {
    return StagedOf(Reach(2, outputs() * made_), VectorOf(source_width_, op_.dtype),
                    {Reach(1, box_[1]), Reach(0, box_[0]), reduced()});
  }
  // Shared memory for one plane.
  [[nodiscard]] int64_t Bytes() const {
    const int64_t staged = Staged().elements;
    return (staged + reduced() * op_.shape.Taps()) * SizeOf(AccumulatorOf(op_.dtype));
  }

  // Whole planes where they are small; else depth is cut first, then rows, then columns.
  Status Choose() {
    box_ = target_;
    if (box_[2] > kMostWidth) Cut(2, kMostWidth);
    while ((Bytes() > kBoxShared || items() > kMostItems) && CutMore()) {
    }
    return Bytes() <= kMostShared ? Status() : TooMuch("what one output reads", Bytes());
  }

  // So many planes that all multiprocessors have something to do.
  [[nodiscard]] int64_t PlanesAtOnce(int multiprocessors) const {
    const int64_t blocks = int64_t{kBlocksPerMultiprocessor} * multiprocessors;
    const int64_t most = std::min(
        {kPlanesShared / Bytes(), kFewItems / items(), planes(), planes() * count() / blocks});
    return std::max<int64_t>(most, 1);
  }

 private:
  // Cuts the first of these axes that is longer; false where none is.
  bool CutMore() {
    struct Least {
      int axis;
      int64_t outputs;
    };
    static constexpr Least kLeast[] = {{0, 4}, {1, 8}, {0, 1}, {1, 1}, {2, kDepthwiseOutputs}};
    for (const auto& [axis, outputs] : kLeast) {
      if (box_[axis] <= outputs) continue;
      Cut(axis, box_[axis] - 1);
      return true;
    }
    return false;
  }

  // Into even parts of at most so many outputs; along W of whole threads' work.
  void Cut(int d, int64_t most) {
    const int64_t grain = d == 2 ? kDepthwiseOutputs : 1;
    const int64_t units = CeilDiv(target_[d], grain);
    const int64_t parts = CeilDiv(units, std::max<int64_t>(most / grain, 1));
    box_[d] = CeilDiv(units, parts) * grain;
  }

  // Places of the read tensor that so many outputs read.
  [[nodiscard]] int64_t Reach(int d, int64_t outputs) const {
    const int64_t beyond = (op_.shape.filter[d] - 1) * op_.shape.dilation[d];
    const int64_t stride = op_.shape.stride[d];
    if (forward_) return (outputs - 1) * stride + beyond + 1;
    return stride == 1 ? outputs + beyond : (outputs - 1 + beyond) / stride + 2;
  }

  const TileOp& op_;
  const bool forward_;
  const Spatial target_;
  const int64_t source_width_;
  const int made_;
  Spatial box_{};
};

void SetStrides(const StagedTiles& staged, const ConvShape& shape, DirectArgs* conv) {
  const auto cols = static_cast<int>(shape.filter[2]);
  const int rows = cols * static_cast<int>(shape.filter[1]);
  const auto taps = static_cast<int>(shape.Taps());
  const int plane = static_cast<int>(staged.by[0].divisor) * staged.pitch;
  conv->x_stride = {
      {0, 0, staged.elements / static_cast<int>(staged.by[2].divisor), plane, staged.pitch, 1}};
  conv->w_stride = {{0, taps, taps, rows, cols, 1}};
}

int OutVectorOf(int64_t width, DType dtype, int made) {
  const int vector = VectorOf(width, dtype);
  const bool whole = vector * SizeOf(dtype) == 16;
  return made == 1 || vector == 1 ? 1 : whole ? vector : 2;
}

void SetItems(const Boxes& boxes, int64_t planes, DepthwiseArgs* args) {
  const Spatial& box = boxes.box();
  const bool rows_first = boxes.made() > 1;
  args->items_by[0] = MakeDivisor(rows_first ? box[1] : boxes.outputs());
  args->items_by[1] = MakeDivisor(rows_first ? boxes.outputs() : box[1]);
  args->items_by[2] = MakeDivisor(box[0]);
  args->items = static_cast<unsigned>(planes * boxes.items());
}

void SetBoxes(const Boxes& boxes, const Spatial& target, int64_t planes, DepthwiseArgs* args) {
  for (int d = 0; d < 3; ++d) {
    args->box[d] = static_cast<int>(boxes.box()[d]);
    args->boxes[d] = MakeDivisor(CeilDiv(target[d], boxes.box()[d]));
  }
  args->made = boxes.made();
  args->planes = static_cast<int>(planes);
  args->all_planes = static_cast<int>(boxes.planes());
  args->count = static_cast<unsigned>(CeilDiv(boxes.planes(), planes) * boxes.count());
  args->staged = boxes.Staged();
  SetTiles(planes, &args->staged);
  SetItems(boxes, planes, args);
}

Status CheckSums(const DirectArgs& conv) {
  if (conv.one_block == 0 && conv.filter[2] > kDirectBlock) {
    return Error(Code::kUnsupported, "takes filters with rows of at most %d taps, not of %d",
                 kDirectBlock, conv.filter[2]);
  }
  if (conv.reduced > conv.group_channels) {
    return Error(Code::kUnsupported, "takes filters whose sums are of one group of %d channels",
                 conv.group_channels);
  }
  return {};
}

// The cell of a thread block: rows of the filter, and the tiles of x and dy that their sums read.
class Cells {
 public:
  Cells(const TileOp& op, const DirectArgs& conv)
      : shape_(op.shape), dtype_(op.dtype), conv_(conv) {}

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] StagedTiles X() const {
    const int64_t height =
        (conv_.block[2] - 1) * shape_.stride[1] + (rows_ - 1) * shape_.dilation[1];
    const int64_t width =
        (conv_.block[3] - 1) * shape_.stride[2] + (shape_.filter[2] - 1) * shape_.dilation[2];
    return StagedOf(width + 1, VectorOf(shape_.in[2], dtype_),
                    {height + 1, conv_.block[1], conv_.block[0]});
  }
  [[nodiscard]] StagedTiles Dy() const {
    return StagedOf(conv_.block[3], VectorOf(shape_.out[2], dtype_),
                    {conv_.block[2], conv_.block[1], conv_.block[0]});
  }
  [[nodiscard]] int64_t Bytes() const {
    const int64_t elements = int64_t{X().elements} + Dy().elements;
    return elements * int64_t{sizeof(float)} + int64_t{sizeof(DepthwiseCell)};
  }

  // The number of cells of a thread block, of `all` cells of the tile: as many as fit, but no more
  // than leave work for all multiprocessors.
  [[nodiscard]] int64_t AtOnce(int64_t all, int multiprocessors) const {
    const int64_t items = rows_ * CeilDiv(shape_.filter[2], kDepthwiseTaps);
    const int64_t blocks = int64_t{kBlocksPerMultiprocessor} * multiprocessors;
    return std::max<int64_t>(std::min({kMostShared / Bytes(), kMostItems / items, all / blocks}),
                             1);
  }

  // Fewer rows of the filter, evenly, where more are too many.
  Status Choose() {
    const int64_t all = shape_.filter[1];
    rows_ = all;
    for (int64_t parts = 2; Bytes() > kMostShared && rows_ > 1; ++parts)
      rows_ = CeilDiv(all, parts);
    return Bytes() <= kMostShared ? Status() : TooMuch("a block of pixels", Bytes());
  }

 private:
  const ConvShape& shape_;
  const DType dtype_;
  const DirectArgs& conv_;
  int64_t rows_ = 1;
};

int64_t BlocksOf(const DirectArgs& conv) {
  int64_t blocks = 1;
  for (int i = 0; i < 4; ++i) blocks *= CeilDiv(conv.extent[i], conv.block[i]);
  return blocks;
}

void SetCells(const Cells& cells, const ConvShape& shape, int64_t at_once,
              DepthwiseFilterArgs* args) {
  const int64_t tap_parts = CeilDiv(shape.filter[2], kDepthwiseTaps);
  args->cells = static_cast<int>(at_once);
  args->rows = static_cast<int>(cells.rows());
  args->row_parts = static_cast<int>(CeilDiv(shape.filter[1], cells.rows()));
  args->row_taps = static_cast<int>(CeilDiv(shape.filter[2], tap_parts));
  args->parts = MakeDivisor(shape.filter[0] * args->row_parts);
  args->channels = MakeDivisor(shape.k);
  args->items_by[0] = MakeDivisor(cells.rows());
  args->items_by[1] = MakeDivisor(tap_parts);
  args->items = static_cast<unsigned>(at_once * cells.rows() * tap_parts);
  args->x = cells.X();
  args->dy = cells.Dy();
  SetTiles(at_once, &args->x);
  SetTiles(at_once, &args->dy);
}

}  // namespace

Result<DepthwisePlan> PlanDepthwise(const TileOp& op, int multiprocessors) {
  DepthwisePlan plan;
  DepthwiseArgs& args = plan.args;
  args.conv = DirectArgsOf(op);
  OOC_TRY(CheckSums(args.conv));
  Boxes boxes(op);
  OOC_TRY(boxes.Choose());
  const bool forward = op.direction == Direction::kForward;
  const Spatial& target = forward ? op.shape.out : op.shape.in;
  const int64_t planes = boxes.PlanesAtOnce(multiprocessors);
  SetBoxes(boxes, target, planes, &args);
  SetStrides(args.staged, op.shape, &args.conv);
  SetPadding(op.shape, forward ? args.pad_in : args.pad_out);
  args.out_type = static_cast<int>(op.out_dtype);
  args.out_vector = OutVectorOf(target[2], op.out_dtype, args.made);
  args.taps = static_cast<int>(op.shape.Taps());
  args.filter_elements = static_cast<unsigned>(op.shape.g * op.shape.k * args.taps);
  args.channels = MakeDivisor(args.conv.channels);
  args.groups = MakeDivisor(args.conv.g);
  plan.shape = {std::min<Long>(args.count, kMostBlocks), ThreadsFor(args.items),
                static_cast<int>(planes * boxes.Bytes())};
  return plan;
}

Result<DepthwiseFilterPlan> PlanDepthwiseFilter(const TileOp& op, int multiprocessors) {
  if (op.dtype == DType::kFloat64) {
    return Error(Code::kUnsupported,
                 "float64 sums of a filter's gradient go on from block to block: there is nothing "
                 "to share out");
  }
  DepthwiseFilterPlan plan;
  DepthwiseFilterArgs& args = plan.args;
  args.conv = DirectArgsOf(op);
  Cells cells(op, args.conv);
  OOC_TRY(cells.Choose());
  const int64_t channels = op.shape.g * op.shape.k;
  const int64_t parts = op.shape.filter[0] * CeilDiv(op.shape.filter[1], cells.rows());
  plan.tile_blocks = BlocksOf(args.conv);
  SetCells(cells, op.shape, cells.AtOnce(channels * parts * plan.tile_blocks, multiprocessors),
           &args);
  SetPadding(op.shape, args.pad);
  args.taps = static_cast<int>(op.shape.Taps());
  args.elements = static_cast<unsigned>(channels * args.taps);
  plan.block_bytes = int64_t{args.elements} * int64_t{sizeof(float)};
  plan.most_blocks = INT32_MAX / (channels * parts);
  plan.threads = ThreadsFor(args.items);
  plan.shared_bytes = static_cast<int>(args.cells * cells.Bytes());
  return plan;
}

}  // namespace oocdnn::cuda
