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

// A stream, two marks on it, and tiles whose contents do not matter.
class Bench {
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

Bench::~Bench() {
  if (begin_ != nullptr) driver().cuEventDestroy(begin_);
  if (end_ != nullptr) driver().cuEventDestroy(end_);
  if (stream_ != nullptr) driver().cuStreamDestroy(stream_);
  if (memory_ != 0) driver().cuMemFree(memory_);
}

Status Bench::Open(const std::vector<CudnnPlan>& plans, int64_t most_bytes) {
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

Result<float> Bench::Once(const CudnnPlan& plan) {
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

Result<float> Bench::Milliseconds(const CudnnPlan& plan, float enough) {
  OOC_ASSIGN(const float first, Once(plan));
  if (first > kLong && first < enough) return first;
  OOC_ASSIGN(const float second, Once(plan));
  if (second > kSteady) return second;
  OOC_ASSIGN(const float third, Once(plan));
  return std::min(second, third);
}

std::string EngineOf(const CudnnPlan& plan) {
  return Format(" e%lld", static_cast<long long>(plan.facts.engine));
}

// Engines have other code for other types, and for volumes.
std::string CodeOf(const ConvolutionGraph& graph) {
  std::string code = Format("%s %s", Name(graph.direction), graph.shape.in[0] > 1 ? "3d" : "2d");
  for (const TileLayout& layout : graph.layout) code += Format(" %s", Name(layout.dtype));
  return graph.epilogue.empty() ? code : code + " finished";
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

size_t CudnnTrials::FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                              const std::vector<CudnnPlan>& plans, int64_t most_bytes) {
  if (plans.size() < 2) return 0;
  Bench bench(session, graph);
  if (const Status status = bench.Open(plans, most_bytes); !status.ok()) {
    Log(LogLevel::kDebug, "cuDNN's first choice is taken untried: %s", status.message().c_str());
    return 0;
  }
  const double operations = graph.shape.Operations(graph.direction);
  size_t fastest = 0;
  float best = 0, first = 0;
  for (size_t i = 0; i < plans.size() && bench.spent() < kMostMilliseconds; ++i) {
    const std::string code = CodeOf(graph) + EngineOf(plans[i]);
    const std::string kind = KindOf(graph) + EngineOf(plans[i]);
    const auto hopeless = hopeless_.find(kind);
    if (i > 0 && hopeless != hopeless_.end() && operations >= hopeless->second) continue;
    const float enough = i == 0 ? kMostMilliseconds : kHopeless * best;
    const Result<float> seen = bench.Milliseconds(plans[i], loaded_.contains(code) ? enough : 0.0F);
    if (!seen.ok()) return 0;
    loaded_.insert(code);
    Log(LogLevel::kDebug, "cuDNN %s: %.3f ms", plans[i].text.c_str(),
        static_cast<double>(seen.value()));
    if (i == 0) {
      first = seen.value();
      best = first * kClearly;
    }
    if (seen.value() > kTelling && seen.value() > kHopeless * best) hopeless_[kind] = operations;
    if (i == 0 || seen.value() >= best) continue;
    best = seen.value();
    fastest = i;
  }
  if (fastest > 0 && first < kLong) {
    const Result<float> again = bench.Milliseconds(plans[0], 0);
    if (again.ok() && again.value() * kClearly <= best) fastest = 0;
  }
  winner_[KindOf(graph)] = plans[fastest].facts.engine;
  return fastest;
}

int64_t CudnnTrials::WinnerOf(const ConvolutionGraph& graph) const {
  const auto found = winner_.find(KindOf(graph));
  return found == winner_.end() ? -1 : found->second;
}

}  // namespace oocdnn::cuda
