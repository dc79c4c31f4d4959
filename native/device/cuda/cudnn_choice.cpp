// cuDNN's heuristics rank configurations (an engine and its knobs); the filter over what engines
// say of themselves is ours.
//
// Some engines are not what they say. Every engine that cuDNN 9.19 offers on an H200 was compared
// with exact sums of whole numbers; those that failed without a note are named here.
#include "device/cuda/cudnn_choice.hpp"

#include <algorithm>

#include "base/config.hpp"

namespace oocdnn::cuda {
namespace {

constexpr size_t kMostPlans = 4;

// Engines that say nothing of what they do.
struct Silent {
  Direction direction;
  int64_t engine;
  const char* text;
  bool transforms = false;
};
constexpr const char* kWinograd = "computes by Winograd, which is not exact";
constexpr Silent kSilent[] = {
    {Direction::kBackwardFilter, 17, kWinograd, true},
    {Direction::kBackwardFilter, 47, "rounds its sums"},
};

// One configuration of the heuristics' list.
struct Config {
  Descriptor config;
  EngineFacts facts;
};

Result<EngineFacts> FactsOf(const Descriptor& config) {
  OOC_ASSIGN(const Descriptor engine,
             config.Child(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  EngineFacts facts;
  OOC_ASSIGN(facts.engine, engine.Int(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  OOC_ASSIGN(facts.numerical,
             engine.Bits(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE));
  OOC_ASSIGN(facts.behavior,
             engine.Bits(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE));
  return facts;
}

// What tells this configuration from others of its engine, for logs and for finding it again.
std::string TextOf(const Config& config) {
  std::string text = Format("e%lld", static_cast<long long>(config.facts.engine));
  const auto knobs = config.config.Children(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                            CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  if (!knobs.ok()) return text;
  for (const Descriptor& knob : knobs.value()) {
    const auto type = knob.Enumerator(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    const auto value = knob.Int(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    if (!type.ok() || !value.ok()) continue;
    text += Format(" k%d=%lld", type.value(), static_cast<long long>(value.value()));
  }
  return text;
}

// An error here means that this mode knows nothing for the graph.
Result<std::vector<Descriptor>> Ranked(CudnnSession& session, const Descriptor& graph,
                                       cudnnBackendHeurMode_t mode) {
  OOC_ASSIGN(const Descriptor heuristics,
             DescriptorBuilder(session.cudnn(), CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                               "asking the heuristics")
                 .Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
                 .One(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
                 .Finalize());
  return heuristics.Children(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

// Collects plans and the reasons against what is none.
class Collector {
 public:
  Collector(CudnnSession& session, Direction direction, const Permissions& may)
      : session_(session), direction_(direction), may_(may) {}

  void Consider(Descriptor descriptor) {
    Result<EngineFacts> facts = FactsOf(descriptor);
    if (!facts.ok()) return Refuse(std::move(facts).status());
    const Config config{std::move(descriptor), facts.value()};
    if (full() || !Wanted(config.facts)) return;
    if (const char* const why = ObjectionTo(config.facts, direction_, may_)) {
      return Refuse(Error(Code::kUnsupported, "cuDNN's engine %lld %s",
                          static_cast<long long>(config.facts.engine), why));
    }
    Status status = Add(config);
    if (!status.ok()) Refuse(std::move(status));
  }

  void Refuse(Status why) {
    const bool short_of_memory = why.code() == Code::kOutOfMemory;
    if (refusal_.ok() || short_of_memory) refusal_ = std::move(why);
  }

  [[nodiscard]] bool full() const {
    return gave_up_ || plans_.size() >= (may_.compiled > 0 ? may_.compiled : kMostPlans);
  }
  // Returns true where the next mode of the heuristics has nothing to add.
  [[nodiscard]] bool enough() const {
    return full() || (may_.engines.empty() && on_tensor_cores());
  }

  Result<std::vector<CudnnPlan>> Take() && {
    if (!plans_.empty()) return std::move(plans_);
    if (least_workspace_ < INT64_MAX) {
      return Error(Code::kOutOfMemory, "cuDNN needs a workspace of %s at least, %s are left",
                   BytesText(least_workspace_).c_str(), BytesText(may_.workspace).c_str())
          .WithDetail(least_workspace_);
    }
    if (refusal_.ok()) return Error(Code::kUnsupported, "cuDNN knows no engine for it");
    if (refusal_.code() == Code::kOutOfMemory) return refusal_;
    return Status(Code::kUnsupported, refusal_.message());
  }

 private:
  [[nodiscard]] bool on_tensor_cores() const {
    return !plans_.empty() && plans_[0].facts.Has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  }

  // One configuration of an engine is enough, plain arithmetic is not looked at beside tensor
  // cores, nor is the plain loop with strict rules for NaN beside anything. Of what is named, all.
  [[nodiscard]] bool Wanted(const EngineFacts& facts) const {
    const bool known = std::any_of(plans_.begin(), plans_.end(), [&](const CudnnPlan& plan) {
      return plan.facts.engine == facts.engine;
    });
    if (known) return false;
    if (!may_.engines.empty()) {
      return std::find(may_.engines.begin(), may_.engines.end(), facts.engine) !=
             may_.engines.end();
    }
    if (on_tensor_cores() && !facts.Has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return false;
    return plans_.empty() || !facts.Has(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
  }

  Status Add(const Config& config) {
    CudnnPlan made;
    OOC_ASSIGN(made.plan,
               DescriptorBuilder(session_.cudnn(), CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                 "preparing an engine")
                   .One(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, session_.handle())
                   .Child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.config)
                   .Finalize());
    OOC_ASSIGN(made.workspace_bytes, made.plan.Int(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    if (made.workspace_bytes > may_.workspace) {
      least_workspace_ = std::min(least_workspace_, made.workspace_bytes);
      gave_up_ = !may_.second_choice && plans_.empty() &&
                 made.workspace_bytes <= session_.gpu().total_bytes();
      return {};
    }
    made.facts = config.facts;
    made.text = TextOf(config);
    plans_.push_back(std::move(made));
    return {};
  }

  CudnnSession& session_;
  const Direction direction_;
  const Permissions may_;
  std::vector<CudnnPlan> plans_;
  Status refusal_;
  int64_t least_workspace_ = INT64_MAX;
  bool gave_up_ = false;
};

}  // namespace

const char* ObjectionTo(const EngineFacts& facts, Direction direction, const Permissions& may) {
  struct Reason {
    cudnnBackendNumericalNote_t note;
    const char* text;
    bool transforms = false;
  };
  static constexpr Reason kReasons[] = {
      {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "rounds its inputs"},
      {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, "rounds its sums"},
      {CUDNN_NUMERICAL_NOTE_FFT, "computes by FFT, which is not exact", true},
      {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "gives other bits at every run"},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD, kWinograd, true},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, kWinograd, true},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, kWinograd, true},
      {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, kWinograd, true},
  };
  for (const Reason& reason : kReasons) {
    if (facts.Has(reason.note) && !(reason.transforms && may.transforms)) return reason.text;
  }
  if (facts.numerical >> (CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP + 1) != 0) {
    return "has a numerical note that we do not know";
  }
  if (!may.tensor_cores && facts.Has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) {
    return "computes in TF32, which was not asked for";
  }
  if (may.compiled == 0 && (facts.behavior >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1u) != 0) {
    return "compiles at run time, which takes longer than it saves";
  }
  for (const Silent& silent : kSilent) {
    if (silent.transforms && may.transforms) continue;
    if (silent.direction == direction && silent.engine == facts.engine) return silent.text;
  }
  return nullptr;
}

Result<std::vector<CudnnPlan>> FindPlans(CudnnSession& session, const ConvolutionGraph& graph,
                                         const Permissions& may) {
  Result<Descriptor> made = MakeGraph(session.cudnn(), session.handle(), graph);
  if (!made.ok()) return Status(Code::kUnsupported, made.status().message());
  Collector collector(session, graph.direction, may);
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (collector.enough()) break;
    Result<std::vector<Descriptor>> ranked = Ranked(session, made.value(), mode);
    if (!ranked.ok()) {
      collector.Refuse(std::move(ranked).status());
      continue;
    }
    for (Descriptor& config : ranked.value()) collector.Consider(std::move(config));
  }
  return std::move(collector).Take();
}

}  // namespace oocdnn::cuda
