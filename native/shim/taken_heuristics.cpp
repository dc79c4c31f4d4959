#include "shim/taken_heuristics.hpp"

#include <algorithm>
#include <vector>

#include "shim/real.hpp"
#include "shim/taking.hpp"
#include "shim/tile_graph.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

cudnnStatus_t RealResults(Descriptor heuristics, std::vector<Descriptor>* into, int64_t* count) {
  return TheReal().cudnnBackendGetAttribute(
      heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      static_cast<int64_t>(into->size()), count, into->empty() ? nullptr : into->data());
}

// As many of the real library's configurations as there are, up to `most`; none where it refuses.
std::vector<Descriptor> Try(Descriptor heuristics, int64_t most, RealDescriptors* made) {
  std::vector<Descriptor> configs;
  int64_t count = 0;
  if (RealResults(heuristics, &configs, &count) != CUDNN_STATUS_SUCCESS) return {};
  for (int64_t i = 0; i < std::min(count, most); ++i) {
    const Descriptor config = made->Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (config != nullptr) configs.push_back(config);
  }
  if (configs.empty() || RealResults(heuristics, &configs, &count) != CUDNN_STATUS_SUCCESS)
    return {};
  configs.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, std::ssize(configs))));
  return configs;
}

// Those that the client gets, by their places: all that are not taken, and of those that are, with
// tensor cores and without, one, which stands where the first stood. That is one that clients do
// not leave out where they want the same bits in every run.
std::vector<size_t> Chosen(const Node& graph, const std::vector<Descriptor>& configs) {
  constexpr size_t kNone = SIZE_MAX;
  struct OfKind {
    size_t at = kNone;  // in the result
    bool plain = false;
  } kinds[2];
  std::vector<size_t> chosen;
  for (size_t i = 0; i < configs.size(); ++i) {
    if (JudgeConfiguration(graph, configs[i]) == nullptr) {
      chosen.push_back(i);
      continue;
    }
    const EngineNotes notes = NotesOf(configs[i]);
    OfKind& kind = kinds[notes.tensor_cores ? 1 : 0];
    if (kind.at == kNone) {
      kind = {chosen.size(), notes.plain};
      chosen.push_back(i);
    } else if (notes.plain && !kind.plain) {
      chosen[kind.at] = i;
      kind.plain = true;
    }
  }
  return chosen;
}

void Remember(const NodePointer& graph, bool no_engine, const Descriptor* configs, int64_t count) {
  const auto engine = std::make_shared<const Node>(EngineOf(graph, no_engine));
  for (int64_t i = 0; i < count; ++i) Put(configs[i], ConfigurationOf(engine));
}

// The real library's own, without those that are not chosen.
std::optional<cudnnStatus_t> OfferChosen(Descriptor heuristics, const NodePointer& graph,
                                         std::vector<Descriptor> configs, int64_t* count,
                                         Descriptor* into) {
  const std::vector<size_t> chosen = Chosen(*graph, configs);
  if (chosen.size() == configs.size()) return std::nullopt;
  for (size_t i = 0; i < chosen.size(); ++i) configs[chosen[i]] = into[i];
  int64_t given = 0;
  const cudnnStatus_t status = RealResults(heuristics, &configs, &given);
  if (status != CUDNN_STATUS_SUCCESS) return std::nullopt;
  *count = std::ssize(chosen);
  Remember(graph, false, into, *count);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

bool OffersOwn(const Node& heuristics) {
  const NodePointer graph = heuristics.Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (graph == nullptr) return false;
  const Result<GraphPattern> pattern = Recognize(*graph);
  if (!pattern.ok()) return false;
  // Other modes may have an engine yet, but not for tensors that are ours anyway.
  const bool last =
      heuristics.Integer(CUDNN_ATTR_ENGINEHEUR_MODE) == int64_t{CUDNN_HEUR_MODE_FALLBACK};
  if (!last && WhyTaken(pattern.value().call, -1) == nullptr) return false;
  const auto plan = Judge(*graph, false, -1, true);
  return plan != nullptr && plan->taken;
}

std::optional<cudnnStatus_t> OfferConfigurations(Descriptor heuristics, int64_t requested,
                                                 int64_t* count, Descriptor* into) {
  const NodePointer known = Look(heuristics).node;
  const NodePointer graph =
      known != nullptr ? known->Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) : nullptr;
  if (graph == nullptr || !Recognize(*graph).ok()) return std::nullopt;
  RealDescriptors made;
  const bool asks = requested > 0 && into != nullptr;
  std::vector<Descriptor> configs = Try(heuristics, asks ? requested : 1, &made);
  if (!configs.empty()) {
    return asks ? OfferChosen(heuristics, graph, std::move(configs), count, into) : std::nullopt;
  }
  if (!OffersOwn(*known)) return std::nullopt;
  if (asks) {
    const Result<GraphPattern> pattern = Recognize(*graph);
    if (!ConfigureTile(*graph, pattern.value(), into[0])) return std::nullopt;
    Remember(graph, true, into, 1);
  }
  *count = 1;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace oocdnn::shim
