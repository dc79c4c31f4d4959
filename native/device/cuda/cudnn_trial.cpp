// The heuristics know tensor cores well; among the engines that are left without them, their first
// is up to five times slower than the best (measured on an H200 with cuDNN 9.19).
#include "device/cuda/cudnn_trial.hpp"

#include <algorithm>
#include <limits>

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
// Operations a second of the slowest engines that cuDNN's heuristics offer, where there are groups
// and otherwise. Of an input gradient with 64 groups, 31 x 31 taps and 224 x 224 rows, one took 17
// s on an H100 and another 3 ms.
constexpr double kSlowestGroups = 5e8, kSlowest = 2e11;
// Seconds of a run at that rate: a tile that may take longer is probed. The first probe takes no
// longer than kProbeSeconds at that rate, and each further one has so many times the operations.
// The second is the last that an engine may enter which the first did not have.
constexpr double kMayTakeLong = 1.0, kProbeSeconds = 0.1, kProbeGrowth = 8.0;

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
  return shape.Operations(direction) / (shape.g > 1 ? kSlowestGroups : kSlowest);
}

// Tiles on which an engine's speed beside others' is told by their size. Groups are alike.
std::string KindOf(const ConvolutionGraph& graph) {
  const ConvShape& shape = graph.shape;
  std::string kind = CodeOf(graph) + (shape.g > 1 ? " groups" : "");
  for (const int64_t size : {shape.c, shape.k})
    kind += Format(" %lld", static_cast<long long>(size));
  for (size_t axis = 0; axis < shape.filter.size(); ++axis) {
    kind += Format(" x%lld/%lld*%lld", static_cast<long long>(shape.filter[axis]),
                   static_cast<long long>(shape.stride[axis]),
                   static_cast<long long>(shape.dilation[axis]));
  }
  return kind;
}

bool MayTakeLong(const ConvolutionGraph& graph) {
  return SlowestSeconds(graph.shape, graph.direction) > kMayTakeLong;
}

double OperationsOf(const ConvolutionGraph& graph) {
  return graph.shape.Operations(graph.direction);
}

// With fewer samples, groups and rows, so that a run at the slowest rate takes no longer. Groups
// are left by eights as long as that does: there are engines that take channels by eights only.
ConvShape Shrunk(ConvShape shape, Direction direction, double seconds) {
  const auto long_yet = [&] { return SlowestSeconds(shape, direction) > seconds; };
  while (shape.n > 1 && long_yet()) shape.n = (shape.n + 1) / 2;
  while (shape.g > 8 && long_yet()) shape.g = std::max<int64_t>(shape.g / 16 * 8, 8);
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
  while (shape.g > 2 && long_yet()) shape.g = (shape.g + 1) / 2;
  return shape;
}

}  // namespace

CudnnProbes CudnnTrials::ProbesFor(const ConvolutionGraph& graph,
                                   const std::vector<CudnnPlan>& plans) {
  CudnnProbes probes;
  if (!MayTakeLong(graph)) return probes;
  for (const CudnnPlan& plan : plans) {
    const bool fresh = probed_.insert(KindOf(graph) + EngineOf(plan)).second;
    if (fresh) probes.engines.push_back(plan.facts.engine);
  }
  if (probes.engines.empty()) return probes;
  const double most = SlowestSeconds(graph.shape, graph.direction);
  double seconds = kProbeSeconds;
  while (seconds < most) {
    probes.shapes.push_back(Shrunk(graph.shape, graph.direction, seconds));
    seconds *= kProbeGrowth;
  }
  return probes;
}

bool CudnnTrials::IsHopeless(const ConvolutionGraph& graph, const CudnnPlan& plan) const {
  const auto found = hopeless_.find(KindOf(graph) + EngineOf(plan));
  return found != hopeless_.end() && OperationsOf(graph) >= found->second;
}

bool CudnnTrials::IsRated(const ConvolutionGraph& graph, const CudnnPlan& plan) const {
  return rates_.contains(KindOf(graph) + EngineOf(plan));
}

// Milliseconds at the engine's rate. Where it has none: 0, or at the slowest rate where it may take
// very long.
double CudnnTrials::Estimate(const ConvolutionGraph& graph, const CudnnPlan& plan) const {
  const auto rate = rates_.find(KindOf(graph) + EngineOf(plan));
  if (rate != rates_.end()) return rate->second * OperationsOf(graph);
  return MayTakeLong(graph) ? SlowestSeconds(graph.shape, graph.direction) * 1e3 : 0.0;
}

Result<float> CudnnTrials::Time(Bench* bench, const ConvolutionGraph& graph, const CudnnPlan& plan,
                                float enough) {
  const std::string code = CodeOf(graph) + EngineOf(plan);
  Result<float> seen = bench->Milliseconds(plan, loaded_.contains(code) ? enough : 0.0F);
  if (seen.ok()) loaded_.insert(code);
  return seen;
}

bool CudnnTrials::Probe(CudnnSession& session, const ConvolutionGraph& graph,
                        const std::vector<CudnnPlan>& plans, int64_t most_bytes,
                        double operations) {
  Bench bench(session, graph);
  if (!bench.Open(plans, most_bytes).ok()) return false;
  std::map<std::string, float> seen_of;
  float best = std::numeric_limits<float>::infinity();
  for (const CudnnPlan& plan : plans) {
    const double left = static_cast<double>(kMostProbing - bench.spent());
    if (IsHopeless(graph, plan) || left <= 0.0 || Estimate(graph, plan) > left) continue;
    const Result<float> seen = Time(&bench, graph, plan, kHopeless * best);
    if (!seen.ok()) return false;
    Log(LogLevel::kDebug, "probe of cuDNN %s: %.3f ms", plan.text.c_str(),
        static_cast<double>(seen.value()));
    const std::string engine = KindOf(graph) + EngineOf(plan);
    rates_[engine] = static_cast<double>(seen.value()) / OperationsOf(graph);
    seen_of[engine] = seen.value();
    best = std::min(best, seen.value());
  }
  for (const auto& [engine, seen] : seen_of) {
    if (seen > kTelling && seen > kHopeless * best) hopeless_[engine] = OperationsOf(graph);
  }
  if (seen_of.empty()) return false;
  return static_cast<double>(best) / OperationsOf(graph) * operations >
         static_cast<double>(kMostMilliseconds);
}

bool CudnnTrials::IsKnown(const ConvolutionGraph& graph, const CudnnPlan& plan) const {
  return IsRated(graph, plan) || !MayTakeLong(graph);
}

bool CudnnTrials::IsHopeful(const ConvolutionGraph& graph, const CudnnPlan& plan) const {
  return IsKnown(graph, plan) && !IsHopeless(graph, plan);
}

size_t CudnnTrials::LeadOf(const ConvolutionGraph& graph,
                           const std::vector<CudnnPlan>& plans) const {
  const auto hopeful = [&](const CudnnPlan& plan) { return IsHopeful(graph, plan); };
  const auto known = [&](const CudnnPlan& plan) { return IsKnown(graph, plan); };
  auto found = std::find_if(plans.begin(), plans.end(), hopeful);
  if (found == plans.end()) found = std::find_if(plans.begin(), plans.end(), known);
  return found == plans.end() ? 0 : static_cast<size_t>(found - plans.begin());
}

Result<float> CudnnTrials::Look(Bench* bench, const ConvolutionGraph& graph, const CudnnPlan& plan,
                                float left, float enough, double scale) {
  const double estimate = Estimate(graph, plan);
  const bool runs = estimate <= static_cast<double>(left);
  float seen = static_cast<float>(estimate * scale);
  if (runs) {
    Result<float> timed = Time(bench, graph, plan, enough);
    if (!timed.ok()) return timed;
    seen = timed.value();
    if (estimate > 0.0 && static_cast<double>(seen) > estimate) {
      rates_[KindOf(graph) + EngineOf(plan)] = static_cast<double>(seen) / OperationsOf(graph);
    }
  }
  Log(LogLevel::kDebug, "cuDNN %s: %.3f ms%s", plan.text.c_str(), static_cast<double>(seen),
      runs ? "" : ", not run but estimated");
  return seen;
}

CudnnTrial CudnnTrials::FastestOf(CudnnSession& session, const ConvolutionGraph& graph,
                                  const std::vector<CudnnPlan>& plans, int64_t most_bytes) {
  const std::string kind = KindOf(graph);
  const size_t lead = LeadOf(graph, plans);
  const CudnnTrial untried{lead, Estimate(graph, plans[lead]) * 1e-3};
  if (plans.size() < 2 || !IsKnown(graph, plans[lead])) return untried;
  Bench bench(session, graph);
  if (const Status status = bench.Open(plans, most_bytes); !status.ok()) {
    Log(LogLevel::kDebug, "cuDNN %s is taken untried: %s", plans[lead].text.c_str(),
        status.message().c_str());
    return untried;
  }
  size_t fastest = lead;
  float best = 0, first = 0, least = 0;
  double scale = 1.0;  // of what the first took to its estimate: small tiles do not fill a GPU
  for (size_t i = lead; i < plans.size(); ++i) {
    // Unscaled, it bounds a run also of an engine that gains less by a larger tile than the first.
    const double estimate = Estimate(graph, plans[i]);
    const bool unknown = estimate == 0.0;
    if (i > lead && !IsHopeful(graph, plans[i])) continue;
    if (i > lead && unknown && bench.spent() >= kMostMilliseconds) continue;
    const float left = i == lead ? kNeverAgain : kMostMilliseconds - bench.spent();
    const float enough = i == lead ? kMostMilliseconds : kHopeless * best;
    const Result<float> looked = Look(&bench, graph, plans[i], left, enough, scale);
    if (!looked.ok()) return untried;
    const float seen = looked.value();
    if (i == lead) {
      first = least = seen;
      best = first * kClearly;
      if (!unknown) scale = static_cast<double>(seen) / estimate;
    }
    if (seen > kTelling && seen > kHopeless * best) {
      hopeless_[kind + EngineOf(plans[i])] = OperationsOf(graph);
    }
    if (i == lead || seen >= best) continue;
    best = least = seen;
    fastest = i;
  }
  if (fastest > lead && first < kLong) {
    const Result<float> again = bench.Milliseconds(plans[lead], 0);
    if (again.ok() && again.value() * kClearly <= best) {
      fastest = lead;
      least = again.value();
    }
  }
  winner_[kind] = plans[fastest].facts.engine;
  return {fastest, static_cast<double>(least) * 1e-3};
}

std::vector<int64_t> CudnnTrials::WinnerOf(const ConvolutionGraph& graph) const {
  const auto found = winner_.find(KindOf(graph));
  if (found == winner_.end()) return {};
  return {found->second};
}

}  // namespace oocdnn::cuda
