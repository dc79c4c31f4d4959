// A libcudnn.so.9 without a GPU, for the fake driver, whose device memory is host memory. It holds
// descriptors to their rules, and its plans compute the convolution that their graph describes, so
// a graph that is wrong anywhere gives wrong sums.
//
// Its heuristics offer every kind of engine that cuDNN has. Those that must never be taken give
// wrong sums, one offered plan cannot be made, and one wants more memory than there is.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi/cudnn_backend.h"
#include "fake_convolution.hpp"
#include "fake_engines.hpp"
#include "fake_graph.hpp"
#include "fake_stream.hpp"
#include "fake_time.hpp"

struct cudnnContext {
  int plans = 0;
  CUcontext context = ContextOfHandle();
  CUstream stream = nullptr;
};

namespace {

using namespace fake;

int64_t LargestExtent(const Node& heuristics) {
  const Shared& graph = heuristics.children.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).at(0);
  const Node& operation = graph->child(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const View x = ViewOf(operation.child(NamesOf(operation.type).x));
  return *std::max_element(std::begin(x.dims), std::end(x.dims));
}

double OperationsOf(const Node& operation) {
  const Names names = NamesOf(operation.type);
  double operations = 2.0;
  for (const int64_t extent : ViewOf(operation.child(names.y)).dims) {
    operations *= static_cast<double>(extent);
  }
  const View w = ViewOf(operation.child(names.w));
  for (size_t i = 1; i < 5; ++i) operations *= static_cast<double>(w.dims[i]);
  return operations;
}

// The engines that a mode offers for a graph, each as a configuration. For a depthwise convolution
// these are an engine that compiles and the plain loop; where 16-bit types are mixed with others,
// one that compiles and does not add.
std::vector<Shared> ConfigsOf(const Node& heuristics) {
  const Shared& graph = heuristics.children.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).at(0);
  const auto mode = heuristics.one<int>(CUDNN_ATTR_ENGINEHEUR_MODE);
  const Node& operation = graph->child(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const View x = ViewOf(operation.child(NamesOf(operation.type).x));
  const View w = ViewOf(operation.child(NamesOf(operation.type).w));
  const View y = ViewOf(operation.child(NamesOf(operation.type).y));
  const bool depthwise = x.dims[1] > 1 && w.dims[1] == 1 && w.dims[0] == x.dims[1];
  std::vector<Shared> configs;
  if (LargestExtent(heuristics) > kMostExtent) return configs;
  const auto offer = [&](const FakeEngine& engine) {
    if (!Offered(engine, OperationsOf(operation))) return;
    auto config = std::make_shared<Node>();
    config->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    config->finalized = true;
    config->engine = engine;
    config->graph = graph;
    configs.push_back(std::move(config));
  };
  const auto narrow = [](const View& view) {
    return view.dtype == CUDNN_DATA_HALF || view.dtype == CUDNN_DATA_BFLOAT16;
  };
  if (!graph->steps().empty()) {
    if (mode == kFused.mode && !depthwise) offer(kFused);
    return configs;
  }
  if (x.dtype != w.dtype || (x.dtype != y.dtype && (narrow(x) || narrow(y)))) {
    const bool adds = operation.one<float>(NamesOf(operation.type).beta) != 0.0F;
    if (mode == kMixed.mode && !adds) offer(kMixed);
    return configs;
  }
  if (const char* const bytes = std::getenv("OOC_FAKE_HUNGRY");
      bytes != nullptr && mode == kHungry.mode && !depthwise) {
    FakeEngine hungry = kHungry;
    hungry.workspace = std::atoll(bytes) * x.dims[0];
    offer(hungry);
  }
  if (operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR &&
      mode == CUDNN_HEUR_MODE_A) {
    for (const FakeEngine& engine : kSilent) offer(engine);
  }
  for (const FakeEngine& engine : kEngines) {
    const bool depthwise_too = engine.behavior != 0 || engine.numerical == kStrictNan;
    if (engine.mode == mode && !depthwise) offer(engine);
    if (mode == CUDNN_HEUR_MODE_A && depthwise && depthwise_too) offer(engine);
  }
  return configs;
}

cudnnStatus_t Answer(const Ints& values, cudnnBackendAttributeType_t type, int64_t capacity,
                     int64_t* count, void* elements) {
  *count = static_cast<int64_t>(values.size());
  if (elements == nullptr) return CUDNN_STATUS_SUCCESS;
  for (int64_t i = 0; i < std::min(capacity, *count); ++i) {
    const int64_t value = values[static_cast<size_t>(i)];
    if (SizeOf(type) == 8) {
      static_cast<int64_t*>(elements)[i] = value;
    } else {
      static_cast<int*>(elements)[i] = static_cast<int>(value);
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

Ints BitsOf(unsigned bits) {
  Ints set;
  for (int i = 0; i < 32; ++i) {
    if ((bits >> i & 1u) != 0) set.push_back(i);
  }
  return set;
}

// Fills descriptors of the caller's, which must be new: as in cuDNN one that is filled is final,
// and the first such one ends the call with what is filled by then. The number without descriptors
// is an upper bound for engine configurations.
cudnnStatus_t Give(const std::vector<Shared>& nodes, int64_t capacity, int64_t* count,
                   void* elements) {
  *count = static_cast<int64_t>(nodes.size());
  if (elements == nullptr) {
    if (!nodes.empty() && nodes[0]->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) *count += 3;
    return CUDNN_STATUS_SUCCESS;
  }
  *count = std::min(capacity, *count);
  for (int64_t i = 0; i < *count; ++i) {
    const Shared& node = nodes[static_cast<size_t>(i)];
    Shared& target = Of(static_cast<cudnnBackendDescriptor_t*>(elements)[i]);
    if (target->type != node->type) return Fail(CUDNN_STATUS_BAD_PARAM, "descriptor of that type");
    if (target->finalized) return Fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
    *target = *node;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Wrong engines are wrong by a half everywhere. Scratch is used to its last byte.
void Compute(const FakeEngine& engine, const Node& graph, const std::map<int64_t, void*>& memory,
             void* workspace) {
  const Node& operation = graph.child(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const Names names = NamesOf(operation.type);
  Run run;
  run.x = ViewOf(operation.child(names.x));
  run.w = ViewOf(operation.child(names.w));
  run.y = ViewOf(operation.child(names.y));
  run.spatial = SpatialOf(operation.child(names.convolution));
  run.epilogue = EpilogueOf(graph, memory, &run.y);
  run.data[0] = memory.at(run.x.id);
  run.data[1] = memory.at(run.w.id);
  run.data[2] = memory.at(run.y.id);
  run.output = 1;
  if (operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) run.output = 2;
  if (operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    run.output = 0;
  }
  const bool wide = run.x.dtype == CUDNN_DATA_DOUBLE;
  run.beta = wide ? operation.one<double>(names.beta) : operation.one<float>(names.beta);
  run.start = engine.right ? 0.0 : 0.5;
  if (workspace != nullptr) std::memset(workspace, 0xab, static_cast<size_t>(engine.workspace));
  Convolve(run);
}

}  // namespace

#define FAKE(answer, name) extern "C" __attribute__((visibility("default"))) answer name

FAKE(size_t, cudnnGetVersion)() {
  const char* const version = std::getenv("OOC_FAKE_CUDNN_VERSION");
  return version == nullptr ? 91900 : std::strtoul(version, nullptr, 10);
}
FAKE(size_t, cudnnGetCudartVersion)() { return 13000; }
FAKE(const char*, cudnnGetErrorString)(cudnnStatus_t) { return "CUDNN_STATUS_FAKE"; }
FAKE(void, cudnnGetLastErrorString)(char* text, size_t bytes) {
  std::strncpy(text, last_error.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
}
FAKE(cudnnStatus_t, cudnnCreate)(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
FAKE(cudnnStatus_t, cudnnDestroy)(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
FAKE(cudnnStatus_t, cudnnSetStream)(cudnnHandle_t handle, CUstream stream) {
  if (!IsOf(stream, handle->context)) return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
FAKE(cudnnStatus_t, cudnnGetStream)(cudnnHandle_t, CUstream* stream) {
  *stream = nullptr;
  return CUDNN_STATUS_SUCCESS;
}

FAKE(cudnnStatus_t, cudnnBackendCreateDescriptor)(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t* descriptor) {
  auto node = std::make_shared<Node>();
  node->type = type;
  *descriptor = new Shared(std::move(node));
  return CUDNN_STATUS_SUCCESS;
}
FAKE(cudnnStatus_t, cudnnBackendDestroyDescriptor)(cudnnBackendDescriptor_t descriptor) {
  delete &Of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

FAKE(cudnnStatus_t, cudnnBackendSetAttribute)(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void* elements) {
  Node& node = *Of(descriptor);
  if (node.finalized || count < 1) return Fail(CUDNN_STATUS_BAD_PARAM, "set too late, or nothing");
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const bytes = static_cast<const char*>(elements);
    node.values[name].assign(bytes, bytes + static_cast<size_t>(count) * SizeOf(type));
    return CUDNN_STATUS_SUCCESS;
  }
  for (int64_t i = 0; i < count; ++i) {
    const Shared& child = Of(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]);
    if (!child->finalized) return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
    node.children[name].push_back(std::make_shared<Node>(*child));
  }
  return CUDNN_STATUS_SUCCESS;
}

FAKE(cudnnStatus_t, cudnnBackendFinalize)(cudnnBackendDescriptor_t descriptor) {
  Node& node = *Of(descriptor);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (node.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: status = CheckTensor(node); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      status = CheckOperation(node);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: status = CheckGraph(node); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      if (LargestExtent(node) > kMostForHeuristics) {
        status = Fail(CUDNN_STATUS_NOT_SUPPORTED, "an extent is too large");
      }
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      if (node.children.count(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) == 0) {
        status = Fail(CUDNN_STATUS_BAD_PARAM, "a plan of no configuration");
        break;
      }
      const Node& config = node.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      node.engine = config.engine;
      node.graph = config.graph;
      if (!node.engine.makes_plans) status = Fail(CUDNN_STATUS_NOT_SUPPORTED, "not this shape");
      if (std::getenv("OOC_FAKE_SHORT") != nullptr) {
        status = Fail(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "memory is short");
      }
      break;
    }
    default: break;
  }
  node.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

FAKE(cudnnStatus_t, cudnnBackendGetAttribute)(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t capacity,
                                              int64_t* count, void* elements) {
  const Node& node = *Of(descriptor);
  int64_t uncounted = 0;
  if (count == nullptr) count = &uncounted;
  if (!node.finalized) return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "read too early");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return Give(ConfigsOf(node), capacity, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      auto engine = std::make_shared<Node>(node);
      engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
      return Give({engine}, capacity, count, elements);
    }
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: {
      auto knob = std::make_shared<Node>(node);
      knob->type = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
      return Give({knob}, capacity, count, elements);
    }
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE: return Answer({2}, type, capacity, count, elements);
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE: return Answer({7}, type, capacity, count, elements);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return Answer({node.engine.index}, type, capacity, count, elements);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return Answer(BitsOf(node.engine.numerical), type, capacity, count, elements);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return Answer(BitsOf(node.engine.behavior), type, capacity, count, elements);
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
      if (type != CUDNN_TYPE_INT32) return Fail(CUDNN_STATUS_BAD_PARAM, "of 32 bits");
      return Answer({48 << 10}, type, capacity, count, elements);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return Answer({node.engine.workspace}, type, capacity, count, elements);
    default: return Fail(CUDNN_STATUS_NOT_SUPPORTED, "no such attribute");
  }
}

FAKE(cudnnStatus_t, cudnnBackendExecute)(cudnnHandle_t handle, cudnnBackendDescriptor_t raw_plan,
                                         cudnnBackendDescriptor_t raw_pack) {
  const Node &plan = *Of(raw_plan), &pack = *Of(raw_pack);
  const Ints ids = pack.ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const Ints pointers = pack.ints(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (!plan.finalized || !pack.finalized || ids.size() < 3 || pointers.size() != ids.size()) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a plan and three tensors");
  }
  std::map<int64_t, void*> memory;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (pointers[i] % 16 != 0) return Fail(CUDNN_STATUS_BAD_PARAM, "not aligned");
    memory[ids[i]] = reinterpret_cast<void*>(pointers[i]);
  }
  auto* const workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (plan.engine.workspace > 0 && workspace == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "no workspace");
  }
  // At once, behind what the stream holds; so nothing of it is late.
  if (!WaitForStream(handle->stream))
    return Fail(CUDNN_STATUS_EXECUTION_FAILED, "the driver's stream");
  const Node& operation = plan.graph->child(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (Rates() != nullptr) {
    TakeTimeAtRate(plan.engine, OperationsOf(operation));
    return CUDNN_STATUS_SUCCESS;
  }
  TakeTime(plan.engine, ViewOf(operation.child(NamesOf(operation.type).x)));
  Compute(plan.engine, *plan.graph, memory, workspace);
  return CUDNN_STATUS_SUCCESS;
}
