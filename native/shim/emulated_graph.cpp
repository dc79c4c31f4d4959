// The graph API where there is no GPU: descriptors of our own, one engine, which needs no
// workspace.
#include <algorithm>
#include <cstring>
#include <new>

#include "shim/attribute_types.hpp"
#include "shim/descriptors.hpp"
#include "shim/graph_pattern.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

// What the client holds.
struct Own {
  Node node;
};

Own* Of(Descriptor descriptor) { return static_cast<Own*>(descriptor); }

bool IsServed(cudnnBackendDescriptorType_t type) {
  return (type >= CUDNN_BACKEND_POINTWISE_DESCRIPTOR &&
          type <= CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) ||
         (type >= CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
          type <= CUDNN_BACKEND_TENSOR_DESCRIPTOR);
}

cudnnStatus_t CreateDescriptor(cudnnBackendDescriptorType_t type, Descriptor* descriptor) {
  OOC_NEED(descriptor != nullptr, "the place for the descriptor is missing (null)");
  if (!IsServed(type)) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "without a GPU there is no descriptor of type %d",
                  static_cast<int>(type));
  }
  Own* const made = new (std::nothrow) Own;
  if (made == nullptr) {
    return Refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
  }
  made->node.type = type;
  *descriptor = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t NeedDescriptor(Descriptor descriptor) {
  if (descriptor != nullptr) return CUDNN_STATUS_SUCCESS;
  return Refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is null");
}

cudnnStatus_t DestroyDescriptor(Descriptor descriptor) {
  OOC_CUDNN_TRY(NeedDescriptor(descriptor));
  delete Of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Initialize(Descriptor descriptor) {
  OOC_CUDNN_TRY(NeedDescriptor(descriptor));
  const cudnnBackendDescriptorType_t type = Of(descriptor)->node.type;
  Of(descriptor)->node = Node{.type = type};
  return CUDNN_STATUS_SUCCESS;
}

// Attributes lie in hundreds by descriptor: 100 convolution, 200 heuristics, ..., 700 to 749 the
// operations of convolution, 750 to 799 pointwise ones.
bool Belongs(cudnnBackendDescriptorType_t type, int name) {
  switch (type) {
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: return name >= 0 && name < 100;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return name / 100 == 1;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return name / 100 == 2;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return name / 100 == 3;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return name / 100 == 4;
    case CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR: return name / 100 == 5;
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR: return name / 100 == 6;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return name >= 700 && name <= 705;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return name >= 706 && name <= 711;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return name >= 712 && name <= 717;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return name >= 750 && name < 770;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return name / 100 == 8;
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return name / 100 == 9;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return name / 100 == 10;
    case CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR: return name / 100 == 11;
    case CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR: return name / 100 == 12;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return name / 100 == 13;
    default: return false;
  }
}

cudnnStatus_t SetAttribute(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  return Serve([&] {
    OOC_CUDNN_TRY(NeedDescriptor(descriptor));
    Node& node = Of(descriptor)->node;
    OOC_NEED(!node.finalized, "the descriptor is final");
    OOC_NEED(Belongs(node.type, name), "a descriptor of type %d has no attribute %d",
             static_cast<int>(node.type), static_cast<int>(name));
    OOC_CUDNN_TRY(CheckAttributeType(name, type));
    OOC_CUDNN_TRY(CheckAttributeCount(name, count));
    OOC_NEED(elements != nullptr || count == 0, "the elements of attribute %d are missing (null)",
             static_cast<int>(name));
    Attribute attribute = Copied(type, count, elements);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const auto* const given = static_cast<const Descriptor*>(elements);
      for (int64_t i = 0; i < count; ++i) {
        OOC_CUDNN_TRY(NeedDescriptor(given[i]));
        if (!AddNode(&attribute, std::make_shared<const Node>(Of(given[i])->node))) {
          return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors nested in %d levels; at most %d",
                        Of(given[i])->node.levels() + 1, kMostLevels);
        }
        if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS && !attribute.nodes.back()->finalized) {
          return Refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "operation %lld is not final",
                        static_cast<long long>(i));
        }
      }
    }
    node.attributes[name] = std::move(attribute);
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t CheckTensor(const Node& node) {
  const auto dims = node.Integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto stride = node.Integers(CUDNN_ATTR_TENSOR_STRIDES);
  OOC_NEED(!dims.empty() && dims.size() == stride.size(), "a tensor needs extents and strides");
  OOC_NEED(dims.size() <= CUDNN_DIM_MAX, "%zu axes; there are at most %d", dims.size(),
           CUDNN_DIM_MAX);
  for (size_t i = 0; i < dims.size(); ++i) {
    OOC_NEED(dims[i] > 0 && stride[i] >= 0, "axis %zu has the extent %lld and the stride %lld", i,
             static_cast<long long>(dims[i]), static_cast<long long>(stride[i]));
  }
  const auto dtype = static_cast<cudnnDataType_t>(
      node.Integer(CUDNN_ATTR_TENSOR_DATA_TYPE).value_or(CUDNN_DATA_FLOAT));
  OOC_CUDNN_TRY(CheckType(dtype));
  const int64_t alignment = node.Integer(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT).value_or(1);
  OOC_NEED(alignment > 0 && alignment % SizeOf(dtype) == 0,
           "an alignment of %lld bytes is no multiple of the element's",
           static_cast<long long>(alignment));
  return CUDNN_STATUS_SUCCESS;
}

// A graph is checked as a whole when it is complete: it is the one place that knows all operands.
cudnnStatus_t CheckGraph(const Node& node) {
  const Result<GraphPattern> pattern = Recognize(node);
  if (!pattern.ok()) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "%s",
                  pattern.status().message().c_str());
  }
  return Check(pattern.value().call);
}

cudnnStatus_t CheckChildren(const Node& node) {
  for (const auto& [name, attribute] : node.attributes) {
    for (const NodePointer& child : attribute.nodes) {
      OOC_NEED(child->finalized, "what attribute %d names is not final", static_cast<int>(name));
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Has(const Node& node, std::initializer_list<cudnnBackendAttributeName_t> names) {
  for (const cudnnBackendAttributeName_t name : names) {
    OOC_NEED(node.Find(name) != nullptr, "attribute %d is not set", static_cast<int>(name));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckNode(const Node& node) {
  switch (node.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return CheckTensor(node);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                        CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_DILATIONS,
                        CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC});
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return Has(
          node, {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                 CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: return Has(node, {CUDNN_ATTR_POINTWISE_MODE});
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      OOC_CUDNN_TRY(Has(node, {CUDNN_ATTR_OPERATIONGRAPH_OPS}));
      return CheckGraph(node);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH});
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return Has(node, {CUDNN_ATTR_ENGINE_OPERATION_GRAPH});
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return Has(node, {CUDNN_ATTR_ENGINECFG_ENGINE});
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG});
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return Has(node, {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS});
    default: return CUDNN_STATUS_SUCCESS;
  }
}

cudnnStatus_t Finalize(Descriptor descriptor) {
  return Serve([&] {
    OOC_CUDNN_TRY(NeedDescriptor(descriptor));
    Node& node = Of(descriptor)->node;
    OOC_NEED(!node.finalized, "the descriptor is final already");
    OOC_CUDNN_TRY(CheckChildren(node));
    OOC_CUDNN_TRY(CheckNode(node));
    node.finalized = true;
    return CUDNN_STATUS_SUCCESS;
  });
}

// What descriptors say that were never told.
struct Told {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count, value;
};
constexpr Told kTold[] = {
    {CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, 0},
    {CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32, 1, 0},
    {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 0},
    {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, 0},
    {CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 0},
    {CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 0},
    {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 0, 0},
    {CUDNN_ATTR_ENGINE_LAYOUT_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 0},
    {CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, 0, 0},
};

// The answer to a read of heuristics: one engine configuration, into the client's first descriptor.
cudnnStatus_t GiveResult(const Node& heuristics, int64_t requested, int64_t* count,
                         void* elements) {
  if (count != nullptr) *count = 1;
  if (requested < 1 || elements == nullptr) return CUDNN_STATUS_SUCCESS;
  const Descriptor first = *static_cast<Descriptor*>(elements);
  OOC_CUDNN_TRY(NeedDescriptor(first));
  OOC_NEED(Of(first)->node.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
           "results are read into engine configurations");
  const NodePointer graph = heuristics.Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  Of(first)->node = ConfigurationOf(std::make_shared<const Node>(EngineOf(graph)));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GiveAttribute(const Attribute& attribute, int64_t requested, int64_t* count,
                            void* elements) {
  const bool only_count = requested == 0 || elements == nullptr;
  const int64_t given = std::min(requested, attribute.count);
  if (count != nullptr) *count = only_count ? attribute.count : given;
  if (only_count) return CUDNN_STATUS_SUCCESS;
  if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(elements, attribute.bytes.data(),
                static_cast<size_t>(given) * ElementBytes(attribute.type));
    return CUDNN_STATUS_SUCCESS;
  }
  // Descriptors are given into those that the client has made for it, which may be the one that is
  // read: its attributes then end with the first copy.
  auto* const places = static_cast<Descriptor*>(elements);
  const std::vector<NodePointer> nodes = attribute.nodes;
  for (int64_t i = 0; i < given; ++i) {
    OOC_CUDNN_TRY(NeedDescriptor(places[i]));
    const Node& from = *nodes[static_cast<size_t>(i)];
    OOC_NEED(Of(places[i])->node.type == from.type, "the descriptor to read into has type %d",
             static_cast<int>(Of(places[i])->node.type));
    Of(places[i])->node = from;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckReadType(cudnnBackendAttributeType_t given, cudnnBackendAttributeType_t type) {
  if (given == type) return CUDNN_STATUS_SUCCESS;
  return Refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute's type is %d, not %d",
                static_cast<int>(type), static_cast<int>(given));
}

cudnnStatus_t GetAttribute(Descriptor descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                           void* elements) {
  return Serve([&] {
    OOC_CUDNN_TRY(NeedDescriptor(descriptor));
    const Node& node = Of(descriptor)->node;
    OOC_NEED(Belongs(node.type, name), "a descriptor of type %d has no attribute %d",
             static_cast<int>(node.type), static_cast<int>(name));
    if (!node.finalized) {
      return Refuse(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not final");
    }
    OOC_CUDNN_TRY(CheckAttributeType(name, type));
    OOC_NEED(requested >= 0, "%lld elements are requested", static_cast<long long>(requested));
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) return GiveResult(node, requested, count, elements);
    if (const Attribute* const attribute = node.Find(name)) {
      OOC_CUDNN_TRY(CheckReadType(type, attribute->type));
      return GiveAttribute(*attribute, requested, count, elements);
    }
    for (const Told& told : kTold) {
      if (told.name != name) continue;
      OOC_CUDNN_TRY(CheckReadType(type, told.type));
      return GiveAttribute(Copied(told.type, told.count, &told.value), requested, count, elements);
    }
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d is not set", static_cast<int>(name));
  });
}

cudnnStatus_t CheckPlan(cudnnHandle_t handle, Descriptor plan, Descriptor pack) {
  OOC_NEED(handle != nullptr, "the handle is null; cudnnCreate makes one");
  OOC_CUDNN_TRY(NeedDescriptor(plan));
  OOC_CUDNN_TRY(NeedDescriptor(pack));
  const Node &first = Of(plan)->node, &second = Of(pack)->node;
  OOC_NEED(first.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
               second.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
           "a plan and a variant pack are wanted");
  if (first.finalized && second.finalized) return CUDNN_STATUS_SUCCESS;
  return Refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not final");
}

cudnnStatus_t Execute(cudnnHandle_t handle, Descriptor plan, Descriptor pack) {
  return Serve([&] {
    OOC_CUDNN_TRY(CheckPlan(handle, plan, pack));
    const NodePointer graph = GraphBehind(Of(plan)->node);
    OOC_NEED(graph != nullptr, "the plan has no graph");
    const Result<GraphPattern> pattern = Recognize(*graph);
    if (!pattern.ok()) return StatusOf(pattern.status());
    ConvolutionCall call;
    OOC_CUDNN_TRY(Bind(pattern.value(), Of(pack)->node, &call));
    call.stream = handle->stream;
    return Run(call, "no-gpu");
  });
}

cudnnStatus_t WorkspaceSize(cudnnHandle_t handle, Descriptor plan, Descriptor pack, size_t* bytes) {
  OOC_CUDNN_TRY(CheckPlan(handle, plan, pack));
  OOC_NEED(bytes != nullptr, "the place for the size is null");
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

void ServeGraphs(Served* served) {
  OOC_SERVE(served, cudnnBackendCreateDescriptor, CreateDescriptor);
  OOC_SERVE(served, cudnnBackendDestroyDescriptor, DestroyDescriptor);
  OOC_SERVE(served, cudnnBackendInitialize, Initialize);
  OOC_SERVE(served, cudnnBackendSetAttribute, SetAttribute);
  OOC_SERVE(served, cudnnBackendGetAttribute, GetAttribute);
  OOC_SERVE(served, cudnnBackendFinalize, Finalize);
  OOC_SERVE(served, cudnnBackendExecute, Execute);
  OOC_SERVE(served, cudnnGetExecutionPlanWorkspaceSize, WorkspaceSize);
}

}  // namespace oocdnn::shim
