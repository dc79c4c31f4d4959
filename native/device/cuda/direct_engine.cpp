// The direct engine: kernels of our own for every direction, type and shape. It is the reference on
// the GPU and the last resort. See direct.cuh and bias.cuh for the order of its sums, which is that
// of the CPU device's direct engine, so that both give the same bits.
//
// Takes pad 0 only (padding is data). Inputs keep the problem's type in their tiles; the output is
// in the accumulator's, and the gradients of filter and bias in f64.
#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/direct_args.hpp"
#include "device/cuda/engine.hpp"
#include "geom/engines.hpp"
#include "geom/sum_blocks.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;

// Up to so many filter elements get a thread block each; more get a thread for every
// kDirectChannels of them.
constexpr int64_t kFewElements = 1024;

const EngineInfo& DirectInfo() { return EngineNamed("direct"); }

class DirectExecutable : public CudaExecutable {
 protected:
  DirectExecutable(const Gpu& gpu, const TileOp& op) : gpu_(gpu) {
    engine_ = DirectInfo().name;
    properties_ = DirectInfo().properties;
    shape_ = op.shape;
    for (int i = 0; i < kOperands; ++i) {
      dims_[i] = op.shape.DimsOf(static_cast<Operand>(i), op.direction);
    }
  }
  void Lay(Operand operand, DType dtype, const DimOrder& order) {
    layout_[Index(operand)] = PlainLayout(dtype, dims_[Index(operand)], order);
  }

  const Gpu& gpu_;
  ConvShape shape_;

 private:
  std::array<Dims, kOperands> dims_;
};

// Forward, backward data and backward filter: their arguments but for the addresses.
class DirectConvolution final : public DirectExecutable {
 public:
  DirectConvolution(const Gpu& gpu, const TileOp& op);
  Status Run(CUstream stream, const RunArgs& run) override;

 private:
  void SetUpGather();
  void SetUpFilter();
  Status RunFilter(CUstream stream, const RunArgs& run, DirectArgs args);

  const Direction direction_;
  bool by_element_ = false;  // ooc_direct_elements
  DirectArgs args_{};
};

DirectConvolution::DirectConvolution(const Gpu& gpu, const TileOp& op)
    : DirectExecutable(gpu, op), direction_(op.direction) {
  const DType sum = AccumulatorOf(op.dtype);
  const bool filter = direction_ == Direction::kBackwardFilter;
  const bool forward = direction_ == Direction::kForward;
  const DimOrder& order = filter ? kChannelsLastOrder : kDenseOrder;
  Lay(Operand::kX, direction_ == Direction::kBackwardData ? sum : op.dtype, order);
  Lay(Operand::kY, forward ? sum : op.dtype, order);
  const DType gradient = NeedsWideSums(op.shape, op.accumulates) ? DType::kFloat64 : sum;
  Lay(Operand::kW, filter ? gradient : op.dtype,
      forward ? kOutputFastestOrder : kInputFastestOrder);
  args_ = DirectArgsOf(op);
  if (filter) {
    SetUpFilter();
  } else {
    SetUpGather();
  }
}

void DirectConvolution::SetUpGather() {
  const bool forward = direction_ == Direction::kForward;
  args_.count = shape_.n * shape_.g * CeilDiv(args_.channels, kDirectChannels);
  for (const int extent : args_.out_extent) args_.count *= extent;
  args_.x_stride = StridesOf(layout(forward ? Operand::kX : Operand::kY));
  args_.w_stride = StridesOf(layout(Operand::kW));
  args_.out_stride = StridesOf(layout(forward ? Operand::kY : Operand::kX));
}

void DirectConvolution::SetUpFilter() {
  const int64_t rest = shape_.g * shape_.c * shape_.Taps();
  by_element_ = NeedsWideSums(shape_, false) && rest * shape_.k <= kFewElements;
  args_.count = rest * (by_element_ ? shape_.k : CeilDiv(shape_.k, kDirectChannels));
  args_.x_stride = StridesOf(layout(Operand::kX));
  args_.w_stride = StridesOf(layout(Operand::kY));
  args_.out_stride = StridesOf(layout(Operand::kW));
}

Status DirectConvolution::Run(CUstream stream, const RunArgs& run) {
  if (args_.count == 0) return {};
  DirectArgs args = args_;
  args.x = run.tile[Index(Operand::kX)];
  args.w = run.tile[Index(Operand::kW)];
  args.dy = run.tile[Index(Operand::kY)];
  args.accumulate = run.accumulate ? 1 : 0;
  switch (direction_) {
    case Direction::kForward: args.out = run.tile[Index(Operand::kY)]; break;
    case Direction::kBackwardData: args.out = run.tile[Index(Operand::kX)]; break;
    default: return RunFilter(stream, run, args);
  }
  return gpu_.Launch(Kernel::kDirectGather, ShapeOf(args.count), stream, args);
}

Status DirectConvolution::RunFilter(CUstream stream, const RunArgs& run, DirectArgs args) {
  args.out = run.tile[Index(Operand::kW)];
  PlaceBlocks(run.origin, &args);
  if (!by_element_) return gpu_.Launch(Kernel::kDirectFilter, ShapeOf(args.count), stream, args);
  const int threads = args.type == kF64 ? kWarp : kThreads;
  const LaunchShape shape{args.count, threads, threads * int{sizeof(float)}};
  return gpu_.Launch(Kernel::kDirectElements, shape, stream, args);
}

class DirectBias final : public DirectExecutable {
 public:
  DirectBias(const Gpu& gpu, const TileOp& op) : DirectExecutable(gpu, op) {
    Lay(Operand::kY, op.dtype, kDenseOrder);
    Lay(Operand::kBias, DType::kFloat64, kDenseOrder);
    args_.type = static_cast<int>(op.dtype);
    args_.channels = static_cast<int>(shape_.g * shape_.k);
    args_.plane = shape_.out[0] * shape_.out[1] * shape_.out[2];
    args_.count = shape_.n * args_.plane;
    args_.chunks = CeilDiv(args_.count, kBiasChunk);
    args_.by_plane = MakeDivisor(std::min<int64_t>(args_.plane, INT32_MAX));
    args_.by_chunks = MakeDivisor(std::min<int64_t>(args_.chunks, INT32_MAX));
    const auto vector = static_cast<int>(16 / SizeOf(op.dtype));
    args_.vector = args_.plane % vector == 0 ? vector : 1;
    const int64_t parts = Mul(args_.channels, args_.chunks);
    const int64_t bytes = Mul(parts, sizeof(BiasPart));
    if (parts <= INT32_MAX && bytes <= op.workspace_limit) workspace_bytes_ = bytes;
  }

  Status Run(CUstream stream, const RunArgs& run) override {
    if (args_.channels == 0) return {};
    BiasArgs args = args_;
    args.dy = run.tile[Index(Operand::kY)];
    args.parts = workspace_bytes_ > 0 ? static_cast<BiasPart*>(run.workspace) : nullptr;
    args.out = static_cast<double*>(run.tile[Index(Operand::kBias)]);
    args.accumulate = run.accumulate ? 1 : 0;
    const auto size = static_cast<int>(SizeOf(static_cast<DType>(args.type)));
    const int slots = kBiasThreads * (kBiasPiece * size + int{sizeof(BiasSlot)});
    if (args.parts != nullptr) {
      const LaunchShape shape{std::min<Long>(args.channels * args.chunks, kMostBlocks),
                              kBiasThreads, slots + kBiasThreads * int{sizeof(BiasPart)}};
      OOC_TRY(gpu_.Launch(Kernel::kBiasParts, shape, stream, args));
    }
    const LaunchShape shape{args.channels, kBiasThreads, slots + int{sizeof(BiasRoom)}};
    return gpu_.Launch(Kernel::kBiasChain, shape, stream, args);
  }

 private:
  BiasArgs args_{};
};

class DirectEngine final : public CudaEngine {
 public:
  explicit DirectEngine(const Gpu& gpu) : gpu_(gpu) {}
  [[nodiscard]] const EngineInfo& info() const override { return info_; }

  Result<std::unique_ptr<CudaExecutable>> Prepare(const TileOp& op) override {
    if (op.direction == Direction::kBackwardBias) {
      return std::unique_ptr<CudaExecutable>(std::make_unique<DirectBias>(gpu_, op));
    }
    OOC_TRY(CheckShape(op));
    return std::unique_ptr<CudaExecutable>(std::make_unique<DirectConvolution>(gpu_, op));
  }

 private:
  static Status CheckShape(const TileOp& op) {
    for (int d = 0; d < 3; ++d) {
      if (op.shape.pad_before[d] != 0 || op.shape.pad_after[d] != 0) {
        return Error(Code::kUnsupported,
                     "takes padding as data only, and was asked for a padding of %lld",
                     static_cast<long long>(op.shape.pad_before[d]));
      }
    }
    return CheckElements(op);
  }

  const Gpu& gpu_;
  const EngineInfo info_ = DirectInfo();
};

}  // namespace

std::unique_ptr<CudaEngine> MakeDirectEngine(const Gpu& gpu) {
  return std::make_unique<DirectEngine>(gpu);
}

}  // namespace oocdnn::cuda
