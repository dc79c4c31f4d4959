// The descriptors of the graph API where there is a GPU: clients hold the real library's, every
// call goes to it first, and what it accepts is remembered. When a plan is finalized it is decided,
// by shapes and workspace, whether it is taken.
#include <algorithm>
#include <iterator>
#include <optional>

#include "base/log.hpp"
#include "shim/gpu_facts.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"
#include "shim/shadow.hpp"
#include "shim/taking.hpp"

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

// Whether a configuration's engine uses tensor cores: for float tensors, whether the client lets us
// round to TF32.
bool UsesTensorCores(Descriptor config) {
  const Real& real = TheReal();
  Descriptor engine = nullptr;
  if (real.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
      CUDNN_STATUS_SUCCESS) {
    return false;
  }
  cudnnBackendNumericalNote_t notes[32];
  int64_t count = 0;
  const bool known = real.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                                   &engine) == CUDNN_STATUS_SUCCESS &&
                     real.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                   CUDNN_TYPE_NUMERICAL_NOTE, std::size(notes),
                                                   &count, notes) == CUDNN_STATUS_SUCCESS;
  static_cast<void>(real.cudnnBackendDestroyDescriptor(engine));
  const int64_t given = std::clamp<int64_t>(count, 0, std::size(notes));
  return known &&
         std::find(notes, notes + given, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes + given;
}

// What changes the shapes of a plan at run time is not ours to read: objects of C++ by address.
bool IsOverride(cudnnBackendAttributeName_t name) {
  return name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS ||
         name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES ||
         name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES;
}

// The attribute as the real library has accepted it. False where it names a part that is not known.
bool Snapshot(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
              const void* elements, Attribute* attribute) {
  *attribute = Copied(type, count, IsOverride(name) ? nullptr : elements);
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return true;
  for (int64_t i = 0; i < count; ++i) {
    NodePointer part = Look(static_cast<const Descriptor*>(elements)[i]).node;
    if (part == nullptr) return false;
    attribute->nodes.push_back(std::move(part));
  }
  return true;
}

cudnnStatus_t SetAttribute(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  const cudnnStatus_t status =
      TheReal().cudnnBackendSetAttribute(descriptor, name, type, count, elements);
  return Remember(status, [&] {
    Attribute attribute;
    if (!Snapshot(name, type, count, elements, &attribute)) return Drop(descriptor);
    Attribute tensor_cores;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG && !attribute.nodes.empty() &&
        GraphBehind(*attribute.nodes.front()) != nullptr) {
      // The client may destroy the configuration before the plan is final.
      const int64_t used = UsesTensorCores(*static_cast<const Descriptor*>(elements)) ? 1 : 0;
      tensor_cores = Copied(CUDNN_TYPE_INT64, 1, &used);
    }
    Update(descriptor, [&](Node* node) {
      node->attributes[name] = std::move(attribute);
      if (tensor_cores.count > 0) node->attributes[kTensorCores] = std::move(tensor_cores);
    });
  });
}

// The real library's workspace for a plan or a configuration; -1 where it has none.
int64_t WorkspaceOf(Descriptor descriptor, cudnnBackendAttributeName_t name) {
  int64_t bytes = 0, count = 0;
  const cudnnStatus_t status =
      TheReal().cudnnBackendGetAttribute(descriptor, name, CUDNN_TYPE_INT64, 1, &count, &bytes);
  return status == CUDNN_STATUS_SUCCESS && count == 1 ? bytes : -1;
}

// Whether executions may bring shapes that differ from those of the graph.
bool ShapesMayChange(const Node& graph) {
  return graph.Integer(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED).value_or(0) != 0 ||
         graph.Integer(CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED).value_or(0) != 0;
}

// What a plan of this graph would be to us, with the real library's workspace for it; null where we
// could not run it.
std::shared_ptr<PlanShadow> Judge(const Node& graph, bool tensor_cores, int64_t workspace) {
  Result<GraphPattern> pattern = Recognize(graph);
  if (!pattern.ok()) {
    Log(LogLevel::kDebug, "passed: %s", pattern.status().message().c_str());
    return nullptr;
  }
  auto plan = std::make_shared<PlanShadow>();
  plan->pattern = std::move(pattern).value();
  ConvolutionCall& call = plan->pattern.call;
  call.device = CurrentDevice();
  call.convolution.math = tensor_cores ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  const char* const why = ShapesMayChange(graph) ? nullptr : WhyTaken(call, workspace);
  if (why == nullptr) return plan;
  if (const auto bytes = ScratchBytes(call)) {
    plan->taken = true;
    plan->scratch_bytes = *bytes;
    plan->why = why;
  }
  return plan;
}

// True where the plan is taken.
bool DecidePlan(Descriptor descriptor, const Node& node, cudnnStatus_t real_status) {
  const NodePointer graph = GraphBehind(node);
  if (graph == nullptr) return false;
  const bool made = real_status == CUDNN_STATUS_SUCCESS;
  const int64_t workspace =
      made ? WorkspaceOf(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) : -1;
  const auto plan = Judge(*graph, node.Integer(kTensorCores).value_or(0) != 0, workspace);
  if (plan == nullptr) return false;
  plan->real = made;
  if (made || plan->taken) Put(descriptor, PlanPointer(plan));
  return plan->taken;
}

cudnnStatus_t Finalize(Descriptor descriptor) {
  cudnnStatus_t status = TheReal().cudnnBackendFinalize(descriptor);
  Passed();
  static_cast<void>(Serve([&] {
    if (status == CUDNN_STATUS_SUCCESS) {
      Update(descriptor, [](Node* node) { node->finalized = true; });
    }
    const NodePointer known = Look(descriptor).node;
    if (known != nullptr && known->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        DecidePlan(descriptor, *known, status)) {
      status = CUDNN_STATUS_SUCCESS;
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
  const auto engine = std::make_shared<const Node>(EngineOf(graph));
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

// Our workspace for what a configuration would be taken for; nothing where it would not be.
std::optional<int64_t> ConfigurationScratch(Descriptor config) {
  std::optional<int64_t> bytes;
  static_cast<void>(Serve([&] {
    const NodePointer known = Look(config).node;
    if (known == nullptr || known->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
      return CUDNN_STATUS_SUCCESS;
    }
    const NodePointer graph = GraphBehind(*known);
    const int64_t workspace = WorkspaceOf(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
    if (graph == nullptr || workspace < 0) return CUDNN_STATUS_SUCCESS;
    const auto plan = Judge(*graph, UsesTensorCores(config), workspace);
    if (plan != nullptr && plan->taken) bytes = plan->scratch_bytes;
    return CUDNN_STATUS_SUCCESS;
  }));
  return bytes;
}

cudnnStatus_t GetAttribute(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                           void* elements) {
  const PlanPointer plan = Look(descriptor).plan;
  if (plan != nullptr && plan->taken) {
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
      return GiveBytes(plan->scratch_bytes, requested, count, elements);
    }
    if (!plan->real) {
      return Ours(Refuse(CUDNN_STATUS_NOT_SUPPORTED,
                         "this plan runs in tiles; the real library has none to read from"));
    }
  }
  if (name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
    if (const auto bytes = ConfigurationScratch(descriptor)) {
      return GiveBytes(*bytes, requested, count, elements);
    }
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

void ServeTakenGraphs(Served* served) {
  OOC_SERVE(served, cudnnBackendCreateDescriptor, CreateDescriptor);
  OOC_SERVE(served, cudnnBackendDestroyDescriptor, DestroyDescriptor);
  OOC_SERVE(served, cudnnBackendInitialize, Initialize);
  OOC_SERVE(served, cudnnBackendSetAttribute, SetAttribute);
  OOC_SERVE(served, cudnnBackendGetAttribute, GetAttribute);
  OOC_SERVE(served, cudnnBackendFinalize, Finalize);
}

}  // namespace oocdnn::shim
