#include "shim/taken_heuristics.hpp"

#include <algorithm>
#include <vector>

#include "shim/real.hpp"
#include "shim/taking.hpp"
#include "shim/tile_graph.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

// The engine's number, by which configurations are told apart; -1 where it cannot be asked.
int64_t IndexOf(Descriptor config) {
  RealDescriptors made;
  Descriptor engine = made.Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  int64_t index = -1, count = 0;
  const bool known =
      engine != nullptr &&
      TheReal().cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                         &engine) == CUDNN_STATUS_SUCCESS &&
      TheReal().cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                         1, &count, &index) == CUDNN_STATUS_SUCCESS;
  return known ? index : -1;
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
// client's descriptors in the places of the chosen. The number of descriptors stays the same,
// because it decides which candidates the real library examines. Nothing where the answer differs
// from the first one; the client then gets the real library's.
std::optional<cudnnStatus_t> OfferChosen(Descriptor heuristics, const NodePointer& graph,
                                         HeuristicResults results, int64_t* count,
                                         Descriptor* into) {
  const std::vector<Descriptor> given(results.room.begin(), results.room.begin() + results.given);
  const std::vector<size_t> chosen = Chosen(*graph, given);
  if (chosen.size() == given.size()) return std::nullopt;
  for (size_t i = 0; i < chosen.size(); ++i) results.room[chosen[i]] = into[i];
  const int64_t before = results.given;
  if (!FillResults(heuristics, &results) || results.given != before) return std::nullopt;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int64_t index = IndexOf(into[i]);
    if (index < 0 || index != IndexOf(given[chosen[i]])) return std::nullopt;
  }
  *count = std::ssize(chosen);
  Remember(graph, false, into, *count);
  return CUDNN_STATUS_SUCCESS;
}

// Whether a configuration of ours could stand for those that the real library lacks. Modes other
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
      return OfferChosen(heuristics, graph, std::move(results), count, into);
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
