#include "shim/intercepted_heuristics.hpp"

#include <algorithm>
#include <vector>

#include "shim/interception.hpp"
#include "shim/real.hpp"
#include "shim/tile_graph.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

// True if the descriptor is a configuration whose engine can be read.
bool IsFilled(Descriptor config) {
  RealDescriptors made;
  Descriptor engine = made.Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  int64_t count = 0;
  return engine != nullptr &&
         TheReal().cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                            &engine) == CUDNN_STATUS_SUCCESS &&
         count == 1;
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

// The real library's own, without those that are not chosen: the same query again, with the
// client's descriptors in the places of the chosen and new ones elsewhere, because a descriptor can
// be filled only once. The client gets as many as that fills.
std::optional<cudnnStatus_t> OfferChosen(Descriptor heuristics, const NodePointer& graph,
                                         HeuristicResults results, RealDescriptors* made,
                                         int64_t* count, Descriptor* into) {
  results.room.resize(static_cast<size_t>(results.given));
  const std::vector<size_t> chosen = Chosen(*graph, results.room);
  if (chosen.size() == results.room.size()) return std::nullopt;
  for (Descriptor& place : results.room) {
    place = made->Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (place == nullptr) return std::nullopt;
  }
  for (size_t i = 0; i < chosen.size(); ++i) results.room[chosen[i]] = into[i];
  FillResults(heuristics, &results);
  const auto end = std::find_if_not(into, into + chosen.size(), IsFilled);
  if (end == into) return std::nullopt;
  *count = end - into;
  Remember(graph, false, into, *count);
  return CUDNN_STATUS_SUCCESS;
}

// True if a configuration of ours could stand for those that the real library lacks. Modes other
// than the last leave it to the client to ask further, except for tensors that are ours anyway.
bool MayOfferOwn(const Node& heuristics, const GraphPattern& pattern) {
  return heuristics.Integer(CUDNN_ATTR_ENGINEHEUR_MODE) == int64_t{CUDNN_HEUR_MODE_FALLBACK} ||
         WhyTaken(pattern.call, -1) != nullptr;
}

}  // namespace

bool OffersOwn(const Node& heuristics) {
  const NodePointer graph = heuristics.Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (graph == nullptr) return false;
  const Result<GraphPattern> pattern = Recognize(*graph);
  if (!pattern.ok() || !MayOfferOwn(heuristics, pattern.value())) return false;
  const auto plan = Judge(*graph, false, -1, true);
  return plan != nullptr && plan->taken;
}

std::optional<cudnnStatus_t> OfferConfigurations(Descriptor heuristics, int64_t requested,
                                                 int64_t* count, Descriptor* into) {
  const NodePointer known = Look(heuristics).node;
  const NodePointer graph =
      known != nullptr ? known->Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) : nullptr;
  if (graph == nullptr) return std::nullopt;
  const Result<GraphPattern> pattern = Recognize(*graph);
  if (!pattern.ok()) return std::nullopt;
  RealDescriptors made;
  const bool asks = requested > 0 && into != nullptr;
  if (asks) {
    HeuristicResults results = ResultsOf(heuristics, requested, &made);
    if (results.given > 0) {
      return OfferChosen(heuristics, graph, std::move(results), &made, count, into);
    }
  }
  if (!MayOfferOwn(*known, pattern.value()) || ResultsOf(heuristics, INT64_MAX, &made).given > 0 ||
      !OffersOwn(*known)) {
    return std::nullopt;
  }
  if (asks) {
    if (!ConfigureTile(*graph, pattern.value(), into[0])) return std::nullopt;
    Remember(graph, true, into, 1);
  }
  *count = 1;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace oocdnn::shim
