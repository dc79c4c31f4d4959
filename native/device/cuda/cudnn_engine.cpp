// The cuDNN engines: forward, backward data and backward filter in all four types, on tiles whose
// channels lie side by side (faster on tensor cores, and without a copy in the workspace), and on
// tiles of planes (which the copy engines carry as they are). What cuDNN has nothing for it
// refuses, with the reason, and another engine serves.
//
// cuDNN's bits depend on the tile's shape. In gradients of the input some of its kernels leave out
// the padding that a filter's NaN meets, and others multiply zeros between strided elements by it.
#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/log.hpp"
#include "base/recent.hpp"
#include "device/cuda/cudnn_trial.hpp"
#include "device/cuda/engine.hpp"
#include "device/cuda/finish.hpp"
#include "geom/engines.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kAlignment = 256;

EngineInfo InfoOf(const CudnnSession& session, ChannelOrder order) {
  EngineInfo info = EngineNamed(std::string("cudnn-") + Name(order));
  const int version = session.cudnn().version;
  info.library = Format("cuDNN %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  return info;
}

// A plan and what it was made for. Where the graph cannot add but the tile must, the workspace ends
// in a second output tile, from `partial` on.
struct Convolution {
  ConvolutionGraph graph;
  CudnnPlan plan;
  int64_t partial = -1;
  double seconds = 0.0;  // of a run, see Executable::run_seconds
  [[nodiscard]] const TileLayout& output() const {
    return graph.layout[Index(OutputOf(graph.direction))];
  }
  [[nodiscard]] int64_t workspace_bytes() const {
    return partial < 0 ? plan.workspace_bytes : Add(partial, output().bytes);
  }
};
using SharedConvolution = std::shared_ptr<const Convolution>;

class CudnnExecutable final : public CudaExecutable {
 public:
  CudnnExecutable(const EngineInfo& info, std::shared_ptr<CudnnSession> session,
                  SharedConvolution convolution)
      : session_(std::move(session)), convolution_(std::move(convolution)) {
    engine_ = info.name + " " + convolution_->plan.text;
    properties_ = info.properties;
    workspace_bytes_ = convolution_->workspace_bytes();
    run_seconds_ = convolution_->seconds;
    std::copy(convolution_->graph.layout.begin(), convolution_->graph.layout.end(),
              layout_.begin());
  }

  // A graph that adds starts from zeros where there is nothing to add to.
  Status Run(CUstream stream, const RunArgs& args) override {
    const ConvolutionGraph& graph = convolution_->graph;
    if (graph.adds && !args.accumulate) {
      OOC_CUDA(session_->gpu().driver(), cuMemsetD8Async, Address(args.tile[Output()]), 0,
               static_cast<size_t>(convolution_->output().bytes), stream);
    }
    if (args.accumulate && !graph.adds) return RunApart(stream, args);
    return RunInto(stream, args, args.tile[Output()]);
  }

 private:
  [[nodiscard]] int Output() const { return Index(OutputOf(convolution_->graph.direction)); }

  Status RunInto(CUstream stream, const RunArgs& args, void* output) {
    std::array<void*, kOperands + 1> memory{};
    std::copy(args.tile.begin(), args.tile.end(), memory.begin());
    memory[static_cast<size_t>(Output())] = output;
    memory[kOperands] = args.workspace;
    const Descriptor* pack = packs_.Find(memory);
    if (pack == nullptr) {
      std::array<void*, kOperands> tile = args.tile;
      tile[Output()] = output;
      OOC_ASSIGN(Descriptor made,
                 MakeVariantPack(session_->cudnn(), convolution_->graph, tile, args.workspace));
      pack = &packs_.Put(memory, std::move(made));
    }
    return session_->Execute(stream, convolution_->plan.plan.get(), pack->get());
  }

  // Into the second tile, and then added.
  Status RunApart(CUstream stream, const RunArgs& args) {
    if (convolution_->partial < 0) {
      return Error(Code::kInternal, "%s was not prepared to add", engine_.c_str());
    }
    void* const partial = static_cast<char*>(args.workspace) + convolution_->partial;
    OOC_TRY(RunInto(stream, args, partial));
    FinishArgs sum;
    sum.out = args.tile[Output()];
    sum.operand = OutputOf(convolution_->graph.direction);
    sum.layout = &convolution_->output();
    sum.old = partial;
    sum.beta = 1.0;
    const Gpu& gpu = session_->gpu();
    OOC_ASSIGN(const FinishPlan plan, PlanFinish(sum, gpu.multiprocessors()));
    return gpu.Launch(Kernel::kFinish, plan.shape, stream, plan.args);
  }

  // The rings of a plan come to few places, which are named again and again.
  static constexpr size_t kPacks = 32;

  const std::shared_ptr<CudnnSession> session_;
  const SharedConvolution convolution_;
  Recent<std::array<void*, kOperands + 1>, Descriptor> packs_{kPacks};
};

// 16-bit types with float sums are computed in TF32, or by an engine that mixes them and is two to
// three times as fast. Compiling it takes half a second, and this much work a tile saves one to
// four milliseconds. Filter gradients are nearly always such sums; there the engine is no better
// before the filter has enough blocks of 128 x 128 for all multiprocessors (its sum is not split).
bool PaysToCompile(const TileOp& op) {
  constexpr double kLeastFilter = 2 << 20, kLeastWork = 1.5e11;
  if (SizeOf(op.dtype) != 2) return false;
  if (!op.accumulates && op.out_dtype == op.dtype) return false;
  if (op.direction != Direction::kBackwardFilter) return op.may_compile;
  double filter = static_cast<double>(op.shape.k) * static_cast<double>(op.shape.c);
  for (const int64_t taps : op.shape.filter) filter *= static_cast<double>(taps);
  return filter >= kLeastFilter && op.shape.MultiplyAdds() >= kLeastWork;
}

Status RefusalOf(const TileOp& op) {
  if (op.direction == Direction::kBackwardBias) {
    return Error(Code::kUnsupported, "cuDNN has no gradient of the bias in its graphs");
  }
  if (op.reproducible) {
    return Error(Code::kUnsupported,
                 "cuDNN's bits depend on the tile's shape, and a reproducible result must not");
  }
  const bool adds = op.accumulates || op.out_dtype != op.dtype;
  if (!op.epilogue.empty() && adds) {
    return Error(Code::kInternal, "sums that are added to are not finished");
  }
  // What it compiles for fewer is slower than a pass of its own behind another engine (VGG16's
  // first layer: 1.72 ms for 1.03, of 85 images on an H200).
  const bool vectors = op.shape.c % 8 == 0 && op.shape.k % 8 == 0 && op.shape.g == 1;
  if (!op.epilogue.empty() && !vectors) {
    return Error(Code::kUnsupported, "cuDNN finishes sums of channels by eights, not of %lld",
                 static_cast<long long>(op.shape.c));
  }
  if (op.shape.pad_before != op.shape.pad_after) {
    return Error(Code::kUnsupported, "the padding of a tile must be the same on both sides");
  }
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    const int64_t elements = Product(op.shape.DimsOf(operand, op.direction));
    if (elements >= 1 && elements <= INT32_MAX) continue;
    return Error(Code::kUnsupported, "cuDNN takes tiles of 1 to 2^31 - 1 elements, and %s has %lld",
                 Name(operand, op.direction), static_cast<long long>(elements));
  }
  return {};
}

class CudnnEngine final : public CudaEngine {
 public:
  CudnnEngine(std::shared_ptr<CudnnSession> session, ChannelOrder order)
      : session_(std::move(session)), order_(order), info_(InfoOf(*session_, order)) {}

  [[nodiscard]] const EngineInfo& info() const override { return info_; }

  Result<std::unique_ptr<CudaExecutable>> Prepare(const TileOp& op) override {
    OOC_TRY(RefusalOf(op));
    OOC_ASSIGN(SharedConvolution convolution, Remembered(op));
    return std::unique_ptr<CudaExecutable>(
        std::make_unique<CudnnExecutable>(info_, session_, std::move(convolution)));
  }

 private:
  // Choosing takes milliseconds, and planners ask for the same tiles again and again.
  static constexpr size_t kRemembered = 1024;

  const Result<SharedConvolution>& Remembered(const TileOp& op) {
    const auto* const known = answers_.Find(op);
    return known != nullptr ? *known : answers_.Put(op, Make(op));
  }

  Result<SharedConvolution> Make(const TileOp& op) {
    Permissions may;
    may.tensor_cores = MayUseTensorCores(op);
    may.transforms = op.dtype == DType::kFloat32 && op.math == Math::kFp32Fast;
    may.workspace = std::min(op.workspace_limit, session_->gpu().total_bytes());
    may.second_choice = !op.first_choice;
    if (PaysToCompile(op)) {
      Result<SharedConvolution> made = PoolForwardMixed(op, may);
      if (made.ok()) return made;
      Log(LogLevel::kDebug, "not compiled: %s", made.status().message().c_str());
    }
    const ConvolutionGraph graph = GraphOf(op, order_);
    OOC_ASSIGN(std::vector<CudnnPlan> plans, PlansOf(graph, op, may));
    const CudnnProbes probes = trials_.ProbesFor(graph, plans);
    may.engines = probes.engines;
    may.compiled = probes.engines.size();  // as these plans are
    for (const ConvShape& shape : probes.shapes) {
      if (!Probe(op, shape, may)) break;
    }
    const CudnnTrial trial = trials_.FastestOf(*session_, graph, plans, op.trial_limit);
    return SharedConvolution(std::make_shared<const Convolution>(
        Convolution{graph, std::move(plans[trial.fastest]), -1, trial.seconds}));
  }

  // Finds out on a tile of this shape how fast the engines are; whether a larger one is worth it,
  // as it is where not all of them are offered for this one.
  bool Probe(TileOp op, const ConvShape& shape, const Permissions& may) {
    const double operations = op.shape.Operations(op.direction);
    op.shape = shape;
    const ConvolutionGraph graph = GraphOf(op, order_);
    const Result<std::vector<CudnnPlan>> plans = FindPlans(*session_, graph, may);
    if (!plans.ok()) return true;
    const bool more = trials_.Probe(*session_, graph, plans.value(), op.trial_limit, operations);
    return more || plans->size() < may.engines.size();
  }

  Result<SharedConvolution> PoolForwardMixed(const TileOp& op, Permissions may) {
    Convolution made{MixedGraphOf(op, order_), {}};
    if (op.accumulates) may.workspace -= Add(made.output().bytes, kAlignment);
    may.compiled = 1;
    OOC_ASSIGN(std::vector<CudnnPlan> plans, FindPlans(*session_, made.graph, may));
    made.plan = std::move(plans[0]);
    if (op.accumulates) made.partial = RoundUp(made.plan.workspace_bytes, kAlignment);
    return SharedConvolution(std::make_shared<const Convolution>(std::move(made)));
  }

  // What finishes its sums may be compiled, if nothing is ready that is worth having.
  Result<std::vector<CudnnPlan>> PlansOf(const ConvolutionGraph& graph, const TileOp& op,
                                         Permissions may) {
    const auto find = [&]() -> Result<std::vector<CudnnPlan>> {
      OOC_ASSIGN(std::vector<CudnnPlan> plans, FindPlans(*session_, graph, may));
      OOC_TRY(CheckWorthwhile(plans[0].facts));
      return plans;
    };
    Result<std::vector<CudnnPlan>> found = find();
    const bool wanting = found.status().code() == Code::kUnsupported;
    if (!wanting || op.epilogue.empty() || !op.may_compile) return found;
    may.compiled = 2;  // the second that is offered may be three times as fast as the first
    may.engines = trials_.WinnerOf(graph);
    found = find();
    if (found.ok() || may.engines.empty()) return found;
    may.engines.clear();  // the other may do with less workspace, or take the shape
    return find();
  }

  // Depthwise, mostly: over planes the plain loop is quick, over channels five times slower.
  [[nodiscard]] Status CheckWorthwhile(const EngineFacts& first) const {
    const bool loop = first.Has(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
    if (order_ == ChannelOrder::kPlanes || !loop) return {};
    return Error(Code::kUnsupported,
                 "cuDNN has only a plain loop for it in this order of channels");
  }

  const std::shared_ptr<CudnnSession> session_;
  const ChannelOrder order_;
  const EngineInfo info_;
  Recent<TileOp, Result<SharedConvolution>> answers_{kRemembered};
  CudnnTrials trials_;
};

}  // namespace

Result<CudaEngines> MakeCudnnEngines(const Gpu& gpu, const std::string& library) {
  OOC_ASSIGN(const std::shared_ptr<CudnnSession> session, CudnnSession::Open(gpu, library));
  CudaEngines engines;
  engines.push_back(std::make_unique<CudnnEngine>(session, ChannelOrder::kInnermost));
  engines.push_back(std::make_unique<CudnnEngine>(session, ChannelOrder::kPlanes));
  return engines;
}

}  // namespace oocdnn::cuda
