// The depthwise engine: kernels of our own for groups of one input channel, in tiles of planes. Its
// sums are those of the direct engine, in the same order and blocks, and so are its bits; but each
// value that is loaded serves several outputs, and filter gradients are shared out by blocks of
// pixels. What it does not take, the direct engine does.
//
// Tiles keep the problem's type, and padding need not be data.
#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/depthwise.hpp"
#include "device/cuda/direct_args.hpp"
#include "device/cuda/engine.hpp"
#include "geom/engines.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kMostSumsBytes = int64_t{64} << 20;  // of the sums that are under way

const EngineInfo& DepthwiseInfo() { return EngineNamed("depthwise"); }

class DepthwiseExecutable : public CudaExecutable {
 protected:
  DepthwiseExecutable(const Gpu& gpu, const TileOp& op, Operand output, DType out_dtype)
      : gpu_(gpu) {
    engine_ = DepthwiseInfo().name;
    properties_ = DepthwiseInfo().properties;
    for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
      layout_[Index(operand)] = PlainLayout(operand == output ? out_dtype : op.dtype,
                                            op.shape.DimsOf(operand, op.direction), kDenseOrder);
    }
  }

  const Gpu& gpu_;
};

class DepthwiseConvolution final : public DepthwiseExecutable {
 public:
  DepthwiseConvolution(const Gpu& gpu, const TileOp& op, const DepthwisePlan& plan)
      : DepthwiseExecutable(gpu, op, OutputOf(op.direction), op.out_dtype),
        source_(op.direction == Direction::kForward ? Operand::kX : Operand::kY),
        target_(OutputOf(op.direction)),
        plan_(plan) {
    plan_.args.source = StridesOf(layout(source_));
    plan_.args.conv.out_stride = StridesOf(layout(target_));
  }

  Status Run(CUstream stream, const RunArgs& run) override {
    if (plan_.args.count == 0) return {};
    DepthwiseArgs args = plan_.args;
    args.conv.x = run.tile[Index(source_)];
    args.conv.dy = args.conv.x;
    args.conv.w = run.tile[Index(Operand::kW)];
    args.conv.out = run.tile[Index(target_)];
    return gpu_.Launch(Kernel::kDepthwise, plan_.shape, stream, args);
  }

 private:
  const Operand source_, target_;
  DepthwisePlan plan_;
};

class DepthwiseFilterSums final : public DepthwiseExecutable {
 public:
  DepthwiseFilterSums(const Gpu& gpu, const TileOp& op, const DepthwiseFilterPlan& plan,
                      int64_t blocks)
      : DepthwiseExecutable(gpu, op, Operand::kW,
                            plan.args.conv.wide != 0 ? DType::kFloat64 : DType::kFloat32),
        plan_(plan),
        blocks_(blocks) {
    workspace_bytes_ = Mul(blocks, plan.block_bytes);
    plan_.args.conv.x_stride = StridesOf(layout(Operand::kX));
    plan_.args.conv.w_stride = StridesOf(layout(Operand::kY));
  }

  // As many blocks at a time as the workspace holds the sums of.
  Status Run(CUstream stream, const RunArgs& run) override {
    if (plan_.args.elements == 0) return {};
    DepthwiseFilterArgs args = plan_.args;
    args.conv.x = run.tile[Index(Operand::kX)];
    args.conv.dy = run.tile[Index(Operand::kY)];
    args.conv.out = run.tile[Index(Operand::kW)];
    args.sums = static_cast<float*>(run.workspace);
    args.add = run.accumulate ? 1 : 0;
    PlaceBlocks(run.origin, &args.conv);
    int64_t all = 1;
    for (const int blocks : args.conv.blocks) all *= blocks;
    for (int64_t first = 0; first < all; first += blocks_) {
      args.first_block = static_cast<unsigned>(first);
      OOC_TRY(RunSome(stream, std::min(blocks_, all - first), &args));
      args.add = 1;
    }
    return {};
  }

 private:
  Status RunSome(CUstream stream, int64_t blocks, DepthwiseFilterArgs* args) const {
    args->some = MakeDivisor(blocks);
    args->count = static_cast<unsigned>(args->elements / args->taps * args->parts.divisor * blocks);
    const LaunchShape sums{std::min<Long>(CeilDiv(args->count, args->cells), kMostBlocks),
                           plan_.threads, plan_.shared_bytes};
    OOC_TRY(gpu_.Launch(Kernel::kDepthwiseFilter, sums, stream, *args));
    return gpu_.Launch(Kernel::kDepthwiseAdd, ShapeOf(args->elements), stream, *args);
  }

  DepthwiseFilterPlan plan_;
  const int64_t blocks_;
};

// Offsets in shared memory are counted from the beginning of the tensor, and are numbers of 32
// bits.
constexpr Spatial kMostExtents{int64_t{1} << 16, int64_t{1} << 16, int64_t{1} << 30};

Status CheckOp(const TileOp& op) {
  if (op.direction == Direction::kBackwardBias) {
    return Error(Code::kUnsupported, "has no gradient of the bias");
  }
  if (!HasSingleInputs(op.shape)) {
    return Error(Code::kUnsupported,
                 "takes groups of one input channel and at most %lld output channels, not of %lld "
                 "and %lld",
                 static_cast<long long>(kMostMultiplier), static_cast<long long>(op.shape.c),
                 static_cast<long long>(op.shape.k));
  }
  if (op.accumulates && op.direction != Direction::kBackwardFilter) {
    return Error(Code::kUnsupported, "adds to gradients of filters only");
  }
  if (!op.epilogue.empty()) return Error(Code::kUnsupported, "finishes no sums");
  OOC_TRY(CheckExtents(op.shape, kMostExtents));
  return CheckElements(op);
}

class DepthwiseEngine final : public CudaEngine {
 public:
  explicit DepthwiseEngine(const Gpu& gpu) : gpu_(gpu) {}
  [[nodiscard]] const EngineInfo& info() const override { return info_; }

  Result<std::unique_ptr<CudaExecutable>> Prepare(const TileOp& op) override {
    OOC_TRY(CheckOp(op));
    if (op.direction == Direction::kBackwardFilter) return PrepareFilter(op);
    OOC_ASSIGN(const DepthwisePlan plan, PlanDepthwise(op, gpu_.multiprocessors()));
    return std::unique_ptr<CudaExecutable>(std::make_unique<DepthwiseConvolution>(gpu_, op, plan));
  }

 private:
  Result<std::unique_ptr<CudaExecutable>> PrepareFilter(const TileOp& op) {
    OOC_ASSIGN(const DepthwiseFilterPlan plan, PlanDepthwiseFilter(op, gpu_.multiprocessors()));
    const int64_t bytes = std::max<int64_t>(plan.block_bytes, 1);
    const int64_t limit = std::min(op.workspace_limit, std::max(kMostSumsBytes, bytes)) / bytes;
    if (limit < 1) {
      return Error(Code::kOutOfMemory, "the sums of one block take a workspace of %lld bytes",
                   static_cast<long long>(bytes))
          .WithDetail(bytes);
    }
    const int64_t blocks = std::min({limit, plan.most_blocks, plan.tile_blocks});
    return std::unique_ptr<CudaExecutable>(
        std::make_unique<DepthwiseFilterSums>(gpu_, op, plan, blocks));
  }

  const Gpu& gpu_;
  const EngineInfo info_ = DepthwiseInfo();
};

}  // namespace

std::unique_ptr<CudaEngine> MakeDepthwiseEngine(const Gpu& gpu) {
  return std::make_unique<DepthwiseEngine>(gpu);
}

}  // namespace oocdnn::cuda
