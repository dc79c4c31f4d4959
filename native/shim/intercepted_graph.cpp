// The descriptors of the graph API where there is a GPU: clients hold the real library's, every
// call goes to it first, and what it accepts is remembered. When a plan is finalized it is decided,
// by shapes and workspace, whether it is taken.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "shim/graph_judge.hpp"
#include "shim/intercepted_heuristics.hpp"
#include "shim/interception.hpp"
#include "shim/plan_text.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"
#include "shim/tile_graph.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

// An attribute of our own on plans, which have none of this number: whether their engine uses
// tensor cores.
constexpr auto kTensorCores = static_cast<cudnnBackendAttributeName_t>(2047);

// Whatever goes wrong in our books, the client gets the real library's answer.
template <class Body>
cudnnStatus_t Remember(cudnnStatus_t status, const Body& body) noexcept {
  Passed();
  if (status != CUDNN_STATUS_SUCCESS) return status;
  static_cast<void>(Serve([&] {
    body();
    return CUDNN_STATUS_SUCCESS;
  }));
  return status;
}

cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type, Descriptor* descriptor) {
  return Remember(TheReal().cudnnBackendCreateDescriptor(type, descriptor),
                  [&] { Put(*descriptor, Node{.type = type}); });
}

cudnnStatus_t DestroyDescriptor(Descriptor descriptor) {
  Drop(descriptor);
  return TheReal().cudnnBackendDestroyDescriptor(descriptor);
}

cudnnStatus_t Initialize(Descriptor descriptor) {
  Drop(descriptor);
  return TheReal().cudnnBackendInitialize(descriptor);
}

// What changes the shapes of a plan at run time is not ours to read: objects of C++ by address.
bool IsOverride(cudnnBackendAttributeName_t name) {
  return name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS ||
         name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES ||
         name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES;
}

// The attribute as the real library has accepted it. False where it names a part that is not known
// or is too deep.
bool Snapshot(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
              const void* elements, Attribute* attribute) {
  *attribute = Copied(type, count, IsOverride(name) ? nullptr : elements);
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return true;
  for (int64_t i = 0; i < count; ++i) {
    NodePointer part = Look(static_cast<const Descriptor*>(elements)[i]).node;
    if (part == nullptr || !AddNode(attribute, std::move(part))) return false;
  }
  return true;
}

// A plan of ours from its text: the real library would not read it.
cudnnStatus_t SetOwnText(Descriptor descriptor, std::string_view text) {
  return Ours(Serve([&] {
    const std::optional<PlanText> plan = PlanOf(text);
    OOC_NEED(plan.has_value(), "the text of a plan that runs in tiles is damaged");
    auto engine = std::make_shared<const Node>(EngineOf(plan->graph, true));
    Attribute config{CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {}};
    config.nodes.push_back(std::make_shared<const Node>(ConfigurationOf(std::move(engine))));
    const int64_t used = plan->tensor_cores ? 1 : 0;
    Update(descriptor, [&](Node* node) {
      node->attributes[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG] = std::move(config);
      node->attributes[kTensorCores] = Copied(CUDNN_TYPE_INT64, 1, &used);
    });
    return CUDNN_STATUS_SUCCESS;
  }));
}

cudnnStatus_t SetAttribute(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION && type == CUDNN_TYPE_CHAR &&
      count > 0 && elements != nullptr) {
    const std::string_view text(static_cast<const char*>(elements), static_cast<size_t>(count));
    if (IsPlanText(text)) return SetOwnText(descriptor, text);
  }
  const cudnnStatus_t status =
      TheReal().cudnnBackendSetAttribute(descriptor, name, type, count, elements);
  return Remember(status, [&] {
    Attribute attribute;
    if (!Snapshot(name, type, count, elements, &attribute)) return Drop(descriptor);
    Attribute tensor_cores;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG && !attribute.nodes.empty() &&
        GraphBehind(*attribute.nodes.front()) != nullptr) {
      // The client may destroy the configuration before the plan is final.
      const int64_t used = NotesOf(*static_cast<const Descriptor*>(elements)).tensor_cores ? 1 : 0;
      tensor_cores = Copied(CUDNN_TYPE_INT64, 1, &used);
    }
    Update(descriptor, [&](Node* node) {
      node->attributes[name] = std::move(attribute);
      if (tensor_cores.count > 0) node->attributes[kTensorCores] = std::move(tensor_cores);
    });
  });
}

// What the real library made of the plan becomes what the client is told.
cudnnStatus_t DecidePlan(Descriptor descriptor, const Node& node, cudnnStatus_t real_status) {
  const NodePointer graph = GraphBehind(node);
  if (graph == nullptr) return real_status;
  const bool no_engine = HasNoEngine(node);
  const bool made = real_status == CUDNN_STATUS_SUCCESS && !no_engine;
  const int64_t workspace =
      made ? WorkspaceOf(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) : -1;
  const bool tensor_cores = node.Integer(kTensorCores).value_or(0) != 0;
  const auto plan = Judge(*graph, tensor_cores, workspace, no_engine);
  const bool taken = plan != nullptr && plan->taken;
  if (no_engine && !taken) {
    return Ours(Refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine, and it does not run in tiles"));
  }
  if (plan == nullptr) return real_status;
  if (taken) Announce(plan->pattern.call, workspace, plan->scratch_bytes);
  plan->real = made;
  if (made || taken) Put(descriptor, PlanPointer(plan));
  return taken ? CUDNN_STATUS_SUCCESS : real_status;
}

cudnnStatus_t Finalize(Descriptor descriptor) {
  cudnnStatus_t status = TheReal().cudnnBackendFinalize(descriptor);
  Passed();
  static_cast<void>(Serve([&] {
    const NodePointer known = Look(descriptor).node;
    if (known != nullptr && known->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
      status = DecidePlan(descriptor, *known, status);
    }
    if (known != nullptr && known->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
        status != CUDNN_STATUS_SUCCESS && OffersOwn(*known)) {
      status = CUDNN_STATUS_SUCCESS;
    }
    if (status == CUDNN_STATUS_SUCCESS) {
      Update(descriptor, [](Node* node) { node->finalized = true; });
    }
    return CUDNN_STATUS_SUCCESS;
  }));
  return status;
}

// What the real library gives a client ready made is of the graph that the source is of.
void Inherit(const Node& source, cudnnBackendAttributeName_t name, int64_t count,
             const Descriptor* into) {
  const NodePointer graph = name == CUDNN_ATTR_ENGINEHEUR_RESULTS
                                ? source.Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
                                : GraphBehind(source);
  if (graph == nullptr) return;
  const auto engine = std::make_shared<const Node>(EngineOf(graph, HasNoEngine(source)));
  for (int64_t i = 0; i < count; ++i) {
    Put(into[i], name == CUDNN_ATTR_ENGINECFG_ENGINE ? *engine : ConfigurationOf(engine));
  }
}

cudnnStatus_t GiveBytes(int64_t bytes, int64_t requested, int64_t* count, void* elements) {
  Passed();
  if (count != nullptr) *count = 1;
  if (requested > 0 && elements != nullptr) *static_cast<int64_t*>(elements) = bytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GiveConfiguration(const NodePointer& graph, bool tensor_cores, int64_t requested,
                                int64_t* count, void* elements) {
  *count = 1;
  if (requested < 1 || elements == nullptr) return CUDNN_STATUS_SUCCESS;
  const Result<GraphPattern> pattern = Recognize(*graph);
  const Descriptor config = *static_cast<const Descriptor*>(elements);
  if (!pattern.ok() || !ConfigureTile(*graph, pattern.value(), config, tensor_cores)) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "this plan runs in tiles, of which the real library has no configuration");
  }
  auto engine = std::make_shared<const Node>(EngineOf(graph, true));
  Put(config, ConfigurationOf(std::move(engine)));
  return CUDNN_STATUS_SUCCESS;
}

// Answers for a plan that only we have made: its configuration, its text and its handle.
cudnnStatus_t ReadOwnPlan(Descriptor descriptor, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                          void* elements) {
  int64_t uncounted = 0;
  int64_t* const told = count != nullptr ? count : &uncounted;
  return Ours(Serve([&]() -> cudnnStatus_t {
    const NodePointer node = Look(descriptor).node;
    const NodePointer graph = node != nullptr ? GraphBehind(*node) : nullptr;
    const bool tensor_cores = graph != nullptr && node->Integer(kTensorCores).value_or(0) != 0;
    if (graph != nullptr && name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      return GiveConfiguration(graph, tensor_cores, requested, told, elements);
    }
    if (graph != nullptr && name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION &&
        type == CUDNN_TYPE_CHAR) {
      const std::string text = TextOf({graph, tensor_cores});
      *told = std::ssize(text);
      const int64_t given = elements == nullptr ? 0 : std::clamp<int64_t>(requested, 0, *told);
      if (given > 0) std::memcpy(elements, text.data(), static_cast<size_t>(given));
      return CUDNN_STATUS_SUCCESS;
    }
    return Refuse(
        CUDNN_STATUS_NOT_SUPPORTED,
        "attribute %d of a plan that runs in tiles: the real library has none to read from",
        static_cast<int>(name));
  }));
}

// Our workspace for what a configuration would be taken for; nothing where it would not be.
std::optional<int64_t> ConfigurationScratch(Descriptor config) {
  const NodePointer known = Look(config).node;
  if (known == nullptr || known->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return std::nullopt;
  const NodePointer graph = GraphBehind(*known);
  if (graph == nullptr) return std::nullopt;
  const auto plan = HasNoEngine(*known) ? Judge(*graph, NotesOf(config).tensor_cores, -1, true)
                                        : JudgeConfiguration(*graph, config);
  return plan != nullptr && plan->taken ? std::optional(plan->scratch_bytes) : std::nullopt;
}

// The answer where it is ours: the workspace of what is taken, and the configurations offered.
std::optional<cudnnStatus_t> EmulatedAnswer(Descriptor descriptor, cudnnBackendAttributeName_t name,
                                            cudnnBackendAttributeType_t type, int64_t requested,
                                            int64_t* count, void* elements) {
  const PlanPointer plan = Look(descriptor).plan;
  if (plan != nullptr && plan->taken) {
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
      return GiveBytes(plan->scratch_bytes, requested, count, elements);
    }
    if (!plan->real) return ReadOwnPlan(descriptor, name, type, requested, count, elements);
  }
  std::optional<cudnnStatus_t> answer;
  static_cast<void>(Serve([&] {
    if (name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
      const auto bytes = ConfigurationScratch(descriptor);
      if (bytes) answer = GiveBytes(*bytes, requested, count, elements);
    }
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
        count != nullptr) {
      answer =
          OfferConfigurations(descriptor, requested, count, static_cast<Descriptor*>(elements));
      if (answer) Passed();
    }
    return CUDNN_STATUS_SUCCESS;
  }));
  return answer;
}

cudnnStatus_t GetAttribute(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                           void* elements) {
  if (const auto answer = EmulatedAnswer(descriptor, name, type, requested, count, elements)) {
    return *answer;
  }
  int64_t given = 0;
  const cudnnStatus_t status = TheReal().cudnnBackendGetAttribute(
      descriptor, name, type, requested, count != nullptr ? count : &given, elements);
  const bool ready_made = name == CUDNN_ATTR_ENGINEHEUR_RESULTS ||
                          name == CUDNN_ATTR_ENGINECFG_ENGINE ||
                          name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
  return Remember(status, [&] {
    if (!ready_made || elements == nullptr) return;
    const NodePointer known = Look(descriptor).node;
    if (known == nullptr) return;
    Inherit(*known, name, std::min(count != nullptr ? *count : given, requested),
            static_cast<const Descriptor*>(elements));
  });
}

}  // namespace

void ServeInterceptedGraphs(Served* served) {
  OOC_SERVE(served, cudnnBackendCreateDescriptor, CreateDescriptor);
  OOC_SERVE(served, cudnnBackendDestroyDescriptor, DestroyDescriptor);
  OOC_SERVE(served, cudnnBackendInitialize, Initialize);
  OOC_SERVE(served, cudnnBackendSetAttribute, SetAttribute);
  OOC_SERVE(served, cudnnBackendGetAttribute, GetAttribute);
  OOC_SERVE(served, cudnnBackendFinalize, Finalize);
}

}  // namespace oocdnn::shim
