// The fp32x3 engine: float32 on tensor cores in three products of TF32 each, for problems that ask
// for it (Math::kFp32x3) or admit it (Math::kFp32Fast). See fp32x3.cuh for what is computed, and in
// which order.
//
// The error is about that of float32: two TF32 numbers hold 23 of the 24 bits of a factor, a
// product leaves out up to 2^-22 of itself, and sums are in blocks. Products of small whole numbers
// are exact. Numbers below 2^-113 lose their last bits, since their low part is subnormal, and an
// infinity, or what rounds to one in TF32 (from 3.402e38 on), gives NaN where it is read.
//
// Tiles have their channels side by side. Filter gradients are sums of parts of the pixels, which
// the workspace holds and a second kernel adds up in float64.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/direct_args.hpp"
#include "device/cuda/engine.hpp"
#include "geom/engines.hpp"

namespace oocdnn::cuda {
namespace {

// Pixels of a part of a filter gradient: the sums of more are less exact, and those of fewer take
// more time to add up.
constexpr int64_t kLeastPart = 2048, kUsualPart = 4096, kMostPart = 6144;
constexpr int64_t kManyParts = 512;  // so many need not be fitted to the multiprocessors
constexpr int64_t kMostSumsBytes = int64_t{64} << 20;  // of the parts that are under way
// So that places in a padded tensor are numbers of 32 bits.
constexpr Spatial kMostExtents{int64_t{1} << 30, int64_t{1} << 30, int64_t{1} << 30};
constexpr int kVector = 4;         // elements of one copy
constexpr int64_t kMostTiles = 4;  // of a thread block

const EngineInfo& Fp32x3Info() { return EngineNamed("fp32x3"); }

bool IsForward(const TileOp& op) { return op.direction == Direction::kForward; }
bool IsFilter(const TileOp& op) { return op.direction == Direction::kBackwardFilter; }

int64_t PlacesOf(const Spatial& extent) { return extent[0] * extent[1] * extent[2]; }

int64_t RowBytes(int64_t pitch) { return pitch * int64_t{sizeof(float)}; }

// Bytes of shared memory: pixels, the factors of some steps, the two parts of those of columns, and
// mbarriers.
template <class Body>
int SharedBytes(bool filter, int64_t columns) {
  constexpr int64_t kPixelBytes = 4 * int64_t{sizeof(int)};
  constexpr int64_t kBarrierBytes = Body::kSplits * 2 * int64_t{sizeof(int64_t)};
  const int64_t pixels = filter ? kFp32x3Pixels : kFp32x3Rows;
  const int64_t step = filter ? Body::kTerms * (RowBytes(kFp32x3Rows + kFp32x3Margin) +
                                                RowBytes(columns + kFp32x3Margin))
                              : (kFp32x3Rows + columns) * RowBytes(Body::kPitch);
  const int64_t split = 2 * Body::kTerms * RowBytes(columns);
  return static_cast<int>(pixels * kPixelBytes + Body::kStages * step + Body::kSplits * split +
                          kBarrierBytes);
}

// The tensor that taps read, and what becomes of places: forward and filter gradients read x;
// backward data reads dy, from the other end of the filter.
void SetPlaces(const TileOp& op, Fp32x3Args* args) {
  const ConvShape& shape = op.shape;
  const bool of_y = op.direction == Direction::kBackwardData;
  const Spatial& source = of_y ? shape.out : shape.in;
  const Spatial& pixels = of_y ? shape.in : shape.out;
  for (int d = 0; d < 3; ++d) {
    args->source[d] = static_cast<int>(source[d]);
    args->pixels[d] = MakeDivisor(pixels[d]);
    args->step[d] = static_cast<int>(of_y ? 1 : shape.stride[d]);
    args->base[d] = static_cast<int>(of_y ? shape.pad_before[d] : -shape.pad_before[d]);
    args->tap_step[d] = static_cast<int>(of_y ? -shape.dilation[d] : shape.dilation[d]);
  }
  args->source_places = static_cast<int>(PlacesOf(source));
  const int64_t channels = of_y ? shape.k : shape.c;
  args->channels = MakeDivisor(channels);
  args->taps[0] = MakeDivisor(shape.filter[1]);
  args->taps[1] = MakeDivisor(shape.filter[2]);
  args->source_group = static_cast<int>(channels);
  args->source_pitch = static_cast<int>(shape.g * channels);
}

void SetGather(const TileOp& op, Fp32x3Args* args) {
  const ConvShape& shape = op.shape;
  const int64_t made = IsForward(op) ? shape.k : shape.c;
  const int64_t read = IsForward(op) ? shape.c : shape.k;
  args->rows = static_cast<unsigned>(shape.n * PlacesOf(IsForward(op) ? shape.out : shape.in));
  args->columns = static_cast<unsigned>(made);
  args->terms = static_cast<unsigned>(shape.Taps() * read);
  args->other_group = static_cast<int>(made * args->terms);
  args->out_group = static_cast<int>(made);
  args->row_step = static_cast<int>(shape.g * made);
  args->column_step = 1;
  args->vector = read % kVector == 0 ? kVector : 1;
}

void SetFilter(const TileOp& op, Fp32x3Args* args) {
  const ConvShape& shape = op.shape;
  args->rows = static_cast<unsigned>(shape.k);
  args->columns = static_cast<unsigned>(shape.Taps() * shape.c);
  args->terms = static_cast<unsigned>(shape.n * PlacesOf(shape.out));
  args->other_group = static_cast<int>(shape.k);
  args->other_pitch = static_cast<int>(shape.g * shape.k);
  args->out_group = static_cast<int>(args->rows * args->columns);
  args->row_step = static_cast<int>(args->columns);
  args->column_step = 1;
  args->part_elements = shape.g * args->out_group;
  args->vector = shape.k % kVector == 0 && shape.c % kVector == 0 ? kVector : 1;
}

Fp32x3Args ArgsOf(const TileOp& op) {
  Fp32x3Args args{};
  SetPlaces(op, &args);
  if (IsFilter(op)) {
    SetFilter(op, &args);
  } else {
    SetGather(op, &args);
  }
  args.groups = MakeDivisor(op.shape.g);
  return args;
}

// A way to cut a product in tiles: their columns, and whether the rows of a filter gradient are
// taps and input channels.
struct Tiling {
  Kernel kernel;
  bool filter;
  int64_t columns;
  bool transposed;
};
constexpr int64_t kNarrow = kFp32x3Columns / 2;
constexpr Tiling kTilings[] = {
    {Kernel::kFp32x3Gather, false, kFp32x3Columns, false},
    {Kernel::kFp32x3GatherNarrow, false, kNarrow, false},
    {Kernel::kFp32x3Filter, true, kFp32x3Columns, false},
    {Kernel::kFp32x3FilterNarrow, true, kNarrow, false},
    {Kernel::kFp32x3FilterTransposed, true, kNarrow, true},
};

// A way to cut the terms of all sums: in how many parts, of how many terms, and parts of a launch.
struct Partition {
  int64_t parts = 1, terms = 0, at_once = 1;
};

// `limit`: parts of a launch; 0: the terms are not cut.
std::vector<Partition> PartitionsOf(int64_t terms, int64_t limit) {
  if (limit == 0) return {{1, terms, 1}};
  std::vector<Partition> all;
  const auto add = [&](int64_t parts) {
    const int64_t each = RoundUp(CeilDiv(terms, parts), int64_t{Fp32x3Wgmma::kTerms});
    const int64_t made = CeilDiv(terms, each);
    all.push_back({made, each, std::min(limit, made)});
  };
  add(CeilDiv(terms, kUsualPart));  // of equal ones the first is taken
  if (all.front().parts > kManyParts) return all;
  for (int64_t parts = CeilDiv(terms, kMostPart); parts <= CeilDiv(terms, kLeastPart); ++parts) {
    add(parts);
  }
  return all;
}

// Launches of a kernel over the tiles of a product.
struct Multiplication {
  Fp32x3Args args;  // its tiles: of one part
  Kernel kernel;
  LaunchShape shape;
  Partition partition;

  Status Launch(const Gpu& gpu, CUstream stream, int64_t parts) const {
    Fp32x3Args its = args;
    its.tiles = static_cast<unsigned>(args.tiles * parts);
    LaunchShape launch = shape;
    // By wgmma, a block has a multiprocessor for itself. It takes several tiles, of which the next
    // one is copied while the last is stored, but not all: copies may wait for a multiprocessor.
    const int64_t rounds = CeilDiv(int64_t{its.tiles}, gpu.multiprocessors());
    const int64_t each = gpu.has_wgmma() ? std::clamp<int64_t>(rounds / 8, 1, kMostTiles) : 1;
    launch.blocks = CeilDiv(int64_t{its.tiles}, each);
    return gpu.Launch(kernel, launch, stream, its);
  }
};

int64_t TilesOf(const Fp32x3Args& args, const Tiling& tiling) {
  const int64_t rows = tiling.transposed ? args.columns : args.rows;
  const int64_t columns = tiling.transposed ? args.rows : args.columns;
  return CeilDiv(rows, kFp32x3Rows) * CeilDiv(columns, tiling.columns) * args.groups.divisor;
}

// Rounds of tiles over the multiprocessors, times what a tile takes: a narrow one two thirds of a
// wide one, as measured on an H200.
int64_t CostOf(const Fp32x3Args& args, const Tiling& tiling, const Partition& partition,
               const Gpu& gpu) {
  const bool narrow = tiling.columns == kNarrow;
  const int64_t tiles = TilesOf(args, tiling);
  const int64_t at_once = gpu.multiprocessors() * int64_t{gpu.has_wgmma() ? 1 : narrow ? 3 : 2};
  const auto rounds = [&](int64_t parts) { return CeilDiv(tiles * parts, at_once); };
  const int64_t whole = partition.parts / partition.at_once;
  const int64_t rest = partition.parts % partition.at_once;
  const int64_t all = whole * rounds(partition.at_once) + rounds(rest);
  return all * partition.terms * (narrow ? 2 : 3);
}

void Transpose(Fp32x3Args* args) {
  std::swap(args->rows, args->columns);
  std::swap(args->row_step, args->column_step);
}

void Cut(const Tiling& tiling, const Partition& partition, const Gpu& gpu, Multiplication* made) {
  Fp32x3Args& args = made->args;
  made->kernel = tiling.kernel;
  made->partition = partition;
  args.part_terms = static_cast<unsigned>(partition.terms);
  args.tiles = static_cast<unsigned>(TilesOf(args, tiling));
  if (tiling.transposed) Transpose(&args);
  args.row_tiles = MakeDivisor(CeilDiv(args.rows, kFp32x3Rows));
  args.column_tiles = MakeDivisor(CeilDiv(args.columns, tiling.columns));
  args.pairs = args.column_step == 1 && args.columns % 2 == 0 ? 1 : 0;
  const auto launch = [&](auto body) {
    made->shape.threads = decltype(body)::kThreads;
    made->shape.shared_bytes = SharedBytes<decltype(body)>(tiling.filter, tiling.columns);
  };
  if (gpu.has_wgmma()) {
    launch(Fp32x3Wgmma());
  } else {
    launch(Fp32x3Mma());
  }
}

// The fastest way to cut. `limit`: see PartitionsOf.
Multiplication MultiplicationOf(const TileOp& op, int64_t limit, const Gpu& gpu) {
  Multiplication made{ArgsOf(op), {}, {}, {}};
  const Tiling* best = nullptr;
  Partition partition;
  int64_t least = 0;
  for (const Partition& one : PartitionsOf(made.args.terms, limit)) {
    for (const Tiling& tiling : kTilings) {
      if (tiling.filter != IsFilter(op)) continue;
      const int64_t cost = CostOf(made.args, tiling, one, gpu);
      if (best != nullptr && cost >= least) continue;
      best = &tiling;
      partition = one;
      least = cost;
    }
  }
  Cut(*best, partition, gpu, &made);
  return made;
}

class Fp32x3Executable : public CudaExecutable {
 public:
  Fp32x3Executable(const Gpu& gpu, const TileOp& op, Multiplication multiplication)
      : gpu_(gpu), multiplication_(multiplication), direction_(op.direction) {
    engine_ = Fp32x3Info().name;
    properties_ = Fp32x3Info().properties;
    Lay(op, Operand::kX, kChannelsLastOrder);
    Lay(op, Operand::kY, kChannelsLastOrder);
    const bool backward = op.direction == Direction::kBackwardData;
    Lay(op, Operand::kW, backward ? kOutputFastestOrder : kInputFastestOrder);
  }

 protected:
  // With the addresses of this run's tiles.
  [[nodiscard]] Multiplication Placed(const RunArgs& run) const {
    Multiplication placed = multiplication_;
    const bool of_y = direction_ == Direction::kBackwardData;
    const bool filter = direction_ == Direction::kBackwardFilter;
    const auto tile = [&](Operand operand) {
      return static_cast<const float*>(run.tile[Index(operand)]);
    };
    placed.args.source_data = tile(of_y ? Operand::kY : Operand::kX);
    placed.args.other_data = tile(filter ? Operand::kY : Operand::kW);
    placed.args.out = static_cast<float*>(run.tile[Index(OutputOf(direction_))]);
    placed.args.accumulate = run.accumulate ? 1 : 0;
    return placed;
  }

  const Gpu& gpu_;

 private:
  void Lay(const TileOp& op, Operand operand, const DimOrder& order) {
    layout_[Index(operand)] =
        PlainLayout(DType::kFloat32, op.shape.DimsOf(operand, op.direction), order);
  }

  const Multiplication multiplication_;
  const Direction direction_;
};

// Forward and backward data. A sum depends on the problem alone, where its channels are not cut.
class Fp32x3Gather final : public Fp32x3Executable {
 public:
  Fp32x3Gather(const Gpu& gpu, const TileOp& op, const Multiplication& multiplication)
      : Fp32x3Executable(gpu, op, multiplication) {}

  Status Run(CUstream stream, const RunArgs& run) override {
    return Placed(run).Launch(gpu_, stream, 1);
  }
};

// Backward filter, as many parts of the pixels at once as the workspace holds the sums of.
class Fp32x3Filter final : public Fp32x3Executable {
 public:
  Fp32x3Filter(const Gpu& gpu, const TileOp& op, const Multiplication& multiplication)
      : Fp32x3Executable(gpu, op, multiplication) {
    workspace_bytes_ =
        Mul(multiplication.partition.at_once, RowBytes(multiplication.args.part_elements));
  }

  Status Run(CUstream stream, const RunArgs& run) override {
    Multiplication some = Placed(run);
    const Partition& partition = some.partition;
    Fp32x3AddArgs add{};
    add.sums = some.args.out = static_cast<float*>(run.workspace);
    add.out = static_cast<float*>(run.tile[Index(Operand::kW)]);
    add.elements = static_cast<unsigned>(some.args.part_elements);
    add.add = run.accumulate ? 1 : 0;
    some.args.accumulate = 0;
    for (int64_t first = 0; first < partition.parts; first += partition.at_once) {
      const int64_t parts = std::min(partition.at_once, partition.parts - first);
      some.args.first_term = static_cast<unsigned>(first * partition.terms);
      add.parts = static_cast<unsigned>(parts);
      OOC_TRY(some.Launch(gpu_, stream, parts));
      OOC_TRY(gpu_.Launch(Kernel::kFp32x3Add, ShapeOf(add.elements), stream, add));
      add.add = 1;
    }
    return {};
  }
};

Status CheckOp(const TileOp& op) {
  if (!Serves(Fp32x3Info(), op.direction, op.dtype, op.math, op.shape)) {
    return Error(Code::kUnsupported,
                 "takes float32 problems that ask for fp32x3 or fp32_fast, sums of %lld terms and "
                 "more, not of %lld, and gradients of inputs without strides",
                 static_cast<long long>(kLeastSplitTerms),
                 static_cast<long long>(TermsOf(op.direction, op.shape)));
  }
  if (op.reproducible) {
    return Error(Code::kUnsupported, "adds in another order where a sum is cut");
  }
  if (!op.epilogue.empty()) return Error(Code::kUnsupported, "finishes no sums");
  OOC_TRY(CheckExtents(op.shape, kMostExtents));
  return CheckElements(op);
}

class Fp32x3Engine final : public CudaEngine {
 public:
  explicit Fp32x3Engine(const Gpu& gpu) : gpu_(gpu) {}
  [[nodiscard]] const EngineInfo& info() const override { return info_; }

  Result<std::unique_ptr<CudaExecutable>> Prepare(const TileOp& op) override {
    OOC_TRY(CheckOp(op));
    if (IsFilter(op)) return PrepareFilter(op);
    return std::unique_ptr<CudaExecutable>(
        std::make_unique<Fp32x3Gather>(gpu_, op, MultiplicationOf(op, 0, gpu_)));
  }

 private:
  Result<std::unique_ptr<CudaExecutable>> PrepareFilter(const TileOp& op) {
    const ConvShape& shape = op.shape;
    const int64_t bytes = RowBytes(Mul(Mul(shape.g * shape.k, shape.c), shape.Taps()));
    const int64_t limit = std::min(op.workspace_limit, std::max(kMostSumsBytes, bytes)) / bytes;
    if (limit < 1) {
      return Error(Code::kOutOfMemory, "the sums of one part take a workspace of %lld bytes",
                   static_cast<long long>(bytes))
          .WithDetail(bytes);
    }
    return std::unique_ptr<CudaExecutable>(
        std::make_unique<Fp32x3Filter>(gpu_, op, MultiplicationOf(op, limit, gpu_)));
  }

  const Gpu& gpu_;
  const EngineInfo info_ = Fp32x3Info();
};

}  // namespace

std::unique_ptr<CudaEngine> MakeFp32x3Engine(const Gpu& gpu) {
  return std::make_unique<Fp32x3Engine>(gpu);
}

}  // namespace oocdnn::cuda
