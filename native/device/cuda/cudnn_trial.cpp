// The heuristics know tensor cores well; among the engines that are left without them, their first
// is up to five times slower than the best (measured on an H200 with cuDNN 9.19).
#include "device/cuda/cudnn_trial.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/log.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr float kMostMilliseconds = 100;
// Of a plan that takes as long one run is enough, unless that looks hopeless: it may be the one
// that loads the code. Two are enough of one that does not vary much.
constexpr float kLong = 20, kSteady = 4;
// A plan that takes this long, and so many times what the best does, is hopeless on larger tiles
// too, where it is as far behind or further.
constexpr float kTelling = 1, kHopeless = 24;
// A plan must be faster than the heuristics' own by this, so that the choice is the same every
// time. Theirs is timed again behind it, as a GPU that has waited is slow at first: of VGG16's
// conv1_2 in TF32 theirs takes 1.9 ms, and lost now and then to one of 3.7.
constexpr float kClearly = 0.9F;
// A first run that takes longer is not repeated: no code takes as long to load.
constexpr float kNeverAgain = 500;
// Milliseconds that a probe takes at most; it begins no further run then.
constexpr float kMostProbing = 400;
// Operations a second of the slowest engines that cuDNN's heuristics offer on GPUs of this decade,
// with groups or few channels (depthwise filters of 31 x 31 on an H200), and otherwise.
constexpr double kSlowest = 2e10, kSlowestDense = 1e12;
constexpr int64_t kFewChannels = 8;
// Seconds of a run at that rate: a tile that may take longer is probed, with one that may not.
constexpr double kMayTakeLong = 1.0, kProbeSeconds = 0.1;

}  // namespace

// A stream, two marks on it, and tiles whose contents do not matter.
class CudnnTrials::Bench {
 public:
  Bench(CudnnSession& session, const ConvolutionGraph& graph) : session_(session), graph_(graph) {}
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Status Open(const std::vector<CudnnPlan>& plans, int64_t most_bytes);
  // `enough`: a first run of kLong and more that takes less counts.
  Result<float> Milliseconds(const CudnnPlan& plan, float enough);
  [[nodiscard]] float spent() const { return spent_; }

 private:
  [[nodiscard]] const Driver& driver() const { return session_.gpu().driver(); }
  Result<float> Once(const CudnnPlan& plan);

  CudnnSession& session_;
  const ConvolutionGraph& graph_;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  std::array<void*, kOperands> tile_{};
  void* workspace_ = nullptr;
  float spent_ = 0;
};

CudnnTrials::Bench::~Bench() {
  if (begin_ != nullptr) driver().cuEventDestroy(begin_);
  if (end_ != nullptr) driver().cuEventDestroy(end_);
  if (stream_ != nullptr) driver().cuStreamDestroy(stream_);
  if (memory_ != 0) driver().cuMemFree(memory_);
}

Status CudnnTrials::Bench::Open(const std::vector<CudnnPlan>& plans, int64_t most_bytes) {
  int64_t bytes = 0, workspace = 0;
  std::array<int64_t, kTensors> at{};
  for (int i = 0; i < kTensors; ++i) {
    at[i] = bytes;
    bytes = Add(bytes, RoundUp(graph_.layout[i].bytes, kAlignment));
  }
  for (const CudnnPlan& plan : plans) workspace = std::max(workspace, plan.workspace_bytes);
  size_t free = 0, total = 0;
  OOC_CUDA(driver(), cuMemGetInfo, &free, &total);
  const int64_t needed = Add(bytes, std::max<int64_t>(workspace, 1));
  if (needed > std::min(most_bytes, static_cast<int64_t>(free / 2))) {
    return Error(Code::kOutOfMemory, "%lld bytes are not to spare", static_cast<long long>(needed));
  }
  OOC_CUDA(driver(), cuMemAlloc, &memory_, static_cast<size_t>(needed));
  for (int i = 0; i < kTensors; ++i) tile_[i] = PointerTo(memory_ + static_cast<size_t>(at[i]));
  workspace_ = PointerTo(memory_ + static_cast<size_t>(bytes));
  OOC_CUDA(driver(), cuStreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING,
           session_.gpu().least_priority());
  OOC_CUDA(driver(), cuEventCreate, &begin_, CU_EVENT_DEFAULT);
  OOC_CUDA(driver(), cuEventCreate, &end_, CU_EVENT_DEFAULT);
  return {};
}

Result<float> CudnnTrials::Bench::Once(const CudnnPlan& plan) {
  OOC_ASSIGN(const Descriptor pack, MakeVariantPack(session_.cudnn(), graph_, tile_, workspace_));
  OOC_CUDA(driver(), cuEventRecord, begin_, stream_);
  OOC_TRY(session_.Execute(stream_, plan.plan.get(), pack.get()));
  OOC_CUDA(driver(), cuEventRecord, end_, stream_);
  OOC_CUDA(driver(), cuStreamSynchronize, stream_);
  float milliseconds = 0;
  OOC_CUDA(driver(), cuEventElapsedTime, &milliseconds, begin_, end_);
  spent_ += milliseconds;
  return milliseconds;
}

Result<float> CudnnTrials::Bench::Milliseconds(const CudnnPlan& plan, float enough) {
  OOC_ASSIGN(const float first, Once(plan));
  if (first > kNeverAgain || (first > kLong && first < enough)) return first;
  OOC_ASSIGN(const float second, Once(plan));
  if (second > kSteady) return second;
  OOC_ASSIGN(const float third, Once(plan));
  return std::min(second, third);
}

namespace {

std::string EngineOf(const CudnnPlan& plan) {
  return Format(" e%lld", static_cast<long long>(plan.facts.engine));
}

// Engines have other code for other types, and for volumes.
std::string CodeOf(const ConvolutionGraph& graph) {
  std::string code = Format("%s %s", Name(graph.direction), graph.shape.in[0] > 1 ? "3d" : "2d");
  for (const TileLayout& layout : graph.layout) code += Format(" %s", Name(layout.dtype));
  return graph.epilogue.empty() ? code : code + " finished";
}

double SlowestSeconds(const ConvShape& shape, Direction direction) {
  const bool dense = shape.g == 1 && shape.c >= kFewChannels && shape.k >= kFewChannels;
  return shape.Operations(direction) / (dense ? kSlowestDense : kSlowest);
}

// Tiles on which an engine's speed beside others' is told by their size.
std::string KindOf(const ConvolutionGraph& graph) {
  const ConvShape& shape = graph.shape;
  std::string kind = CodeOf(graph);
  for (const int64_t size : {shape.g, shape.c, shape.k})
    kind += Format(" %lld", static_cast<long long>(size));
  for (const int64_t taps : shape.filter) kind += Format(" x%lld", static_cast<long long>(taps));
  return kind;
}

}  // namespace

ConvShape ProbeShape(ConvShape shape, Direction direction) {
  const auto long_yet = [&] { return SlowestSeconds(shape, direction) > kProbeSeconds; };
  while (shape.n > 1 && long_yet()) shape.n = (shape.n + 1) / 2;
  for (size_t axis = 0; axis < shape.out.size(); ++axis) {
    const auto rows = [&](int64_t out) {
      return (out - 1) * shape.stride[axis] + shape.Reach(static_cast<int>(axis)) -
             shape.pad_before[axis] - shape.pad_after[axis];
    };
    while (shape.out[axis] > 1 && long_yet() && rows(shape.out[axis] / 2) >= 1) {
      shape.out[axis] /= 2;
      shape.in[axis] = rows(shape.out[axis]);
    }
  }
  return shape;
}

bool CudnnTrials::WantsProbe(const ConvolutionGraph& graph) const {
  return SlowestSeconds(graph.shape, graph.direction) > kMayTakeLong &&
         !probed_.contains(KindOf(graph));
}

void CudnnTrials::Probe(CudnnSession& session, const ConvolutionGraph& graph,
                        const std::vector<CudnnPlan>& plans, int64_t most_bytes) {
  probed_.insert(KindOf(graph));
  Bench bench(session, graph);
  if (!bench.Open(plans, most_bytes).ok()) return;
  const double operations = graph.shape.Operations(graph.direction);
  for (const CudnnPlan& plan : plans) {
    if (bench.spent() >= kMostProbing) return;
    const Result<float> seen = bench.Milliseconds(plan, 0);
    if (!seen.ok()) return;
    loaded_.insert(CodeOf(graph) + EngineOf(plan));
    rates_[KindOf(graph) + EngineOf(plan)] = static_cast<double>(seen.value()) / operations;
    Log(LogLevel::kDebug, "probe of cuDNN %s: %.3f ms", plan.text.c_str(),
        static_cast<double>(seen.value()));
  }
}

// One plan of a trial: run, or estimated where that would take too long.
Result<float> CudnnTrials::Try(Bench* bench, const ConvolutionGraph& graph, const CudnnPlan& plan,
                               float enough) {
  const auto rate = rates_.find(KindOf(graph) + EngineOf(plan));
  if (rate != rates_.end()) {
    const double estimate = rate->second * graph.shape.Operations(graph.direction);
    if (estimate > static_cast<double>(kMostMilliseconds - bench->spent())) {
      Log(LogLevel::kDebug, "cuDNN %s: not run, about %.0f ms", plan.text.c_str(), estimate);
      return static_cast<float>(estimate);
    }
  }
  const std::string code = CodeOf(graph) + EngineOf(plan);
  const Result<float> seen = bench->Milliseconds(plan, loaded_.contains(code) ? enough : 0.0F);
  if (!seen.ok()) return seen;
  loaded_.insert(code);
  Log(LogLevel::kDebug, "cuDNN %s: %.3f ms", plan.text.c_str(), static_cast<double>(seen.value()));
  return seen;
}

CudnnTrial CudnnTrials::FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                                  const std::vector<CudnnPlan>& plans, int64_t most_bytes) {
  const std::string kind = KindOf(graph);
  const double operations = graph.shape.Operations(graph.direction);
  if (plans.size() < 2) {
    const auto rate = rates_.find(kind + EngineOf(plans[0]));
    return {0, rate != rates_.end() ? rate->second * operations * 1e-3 : 0.0};
  }
  Bench bench(session, graph);
  if (const Status status = bench.Open(plans, most_bytes); !status.ok()) {
    Log(LogLevel::kDebug, "cuDNN's first choice is taken untried: %s", status.message().c_str());
    return {};
  }
  size_t fastest = 0;
  float best = 0, first = 0, least = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool rated = rates_.contains(kind + EngineOf(plans[i]));
    if (!rated && bench.spent() >= kMostMilliseconds) continue;
    const std::string engine = kind + EngineOf(plans[i]);
    const auto hopeless = hopeless_.find(engine);
    if (i > 0 && hopeless != hopeless_.end() && operations >= hopeless->second) continue;
    const float enough = i == 0 ? kMostMilliseconds : kHopeless * best;
    const Result<float> seen = Try(&bench, graph, plans[i], enough);
    if (!seen.ok()) return {};
    if (i == 0) {
      first = least = seen.value();
      best = first * kClearly;
    }
    if (seen.value() > kTelling && seen.value() > kHopeless * best) hopeless_[engine] = operations;
    if (i == 0 || seen.value() >= best) continue;
    best = least = seen.value();
    fastest = i;
  }
  if (fastest > 0 && first < kLong) {
    const Result<float> again = bench.Milliseconds(plans[0], 0);
    if (again.ok() && again.value() * kClearly <= best) {
      fastest = 0;
      least = again.value();
    }
  }
  winner_[kind] = plans[fastest].facts.engine;
  return {fastest, static_cast<double>(least) * 1e-3};
}

int64_t CudnnTrials::WinnerOf(const ConvolutionGraph& graph) const {
  const auto found = winner_.find(KindOf(graph));
  return found == winner_.end() ? -1 : found->second;
}

}  // namespace oocdnn::cuda
