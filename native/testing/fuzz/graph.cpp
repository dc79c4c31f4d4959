// The graph API: a pool of descriptors whose attributes are set and read at random, and graphs that
// are right but for one part.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "testing/fuzz/client.hpp"

namespace oocdnn::fuzz {
namespace {

using Name = cudnnBackendAttributeName_t;
using Type = cudnnBackendAttributeType_t;

struct Attribute {
  int first, last;  // names
  Type type;
};

// Numbers that are no attribute's lie between them.
constexpr Attribute kAttributes[] = {
    {0, 0, CUDNN_TYPE_POINTWISE_MODE},
    {1, 1, CUDNN_TYPE_DATA_TYPE},
    {3, 8, CUDNN_TYPE_DOUBLE},
    {9, 9, CUDNN_TYPE_INT64},
    {100, 100, CUDNN_TYPE_DATA_TYPE},
    {101, 101, CUDNN_TYPE_CONVOLUTION_MODE},
    {102, 106, CUDNN_TYPE_INT64},
    {200, 200, CUDNN_TYPE_HEUR_MODE},
    {201, 202, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {300, 302, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {303, 304, CUDNN_TYPE_INT64},
    {400, 400, CUDNN_TYPE_HANDLE},
    {401, 401, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {402, 402, CUDNN_TYPE_INT64},
    {600, 600, CUDNN_TYPE_KNOB_TYPE},
    {601, 601, CUDNN_TYPE_INT64},
    {700, 701, CUDNN_TYPE_DOUBLE},
    {702, 705, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {706, 707, CUDNN_TYPE_DOUBLE},
    {708, 711, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {712, 713, CUDNN_TYPE_DOUBLE},
    {714, 717, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {750, 753, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {754, 755, CUDNN_TYPE_FLOAT},
    {756, 758, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {800, 800, CUDNN_TYPE_HANDLE},
    {801, 801, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {802, 805, CUDNN_TYPE_INT64},
    {900, 900, CUDNN_TYPE_INT64},
    {901, 901, CUDNN_TYPE_DATA_TYPE},
    {902, 906, CUDNN_TYPE_INT64},
    {907, 908, CUDNN_TYPE_BOOLEAN},
    {910, 910, CUDNN_TYPE_DOUBLE},
    {913, 913, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {1000, 1000, CUDNN_TYPE_INT64},
    {1001, 1003, CUDNN_TYPE_VOID_PTR},
    {1300, 1300, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {1301, 1301, CUDNN_TYPE_INT64},
    {1302, 1305, CUDNN_TYPE_BACKEND_DESCRIPTOR},
};
// The first attribute of each type of descriptor.
constexpr int kFirst[] = {0,    100, 1300, 300, 200, 400, 500, 600,  1200,
                          1100, 700, 712,  706, 750, 0,   800, 1000, 900};
constexpr size_t kDescriptors = std::size(kFirst);
constexpr size_t kFilled = 64;  // elements that are drawn; those behind are zeros

Attribute AnyAttribute(Random* random) {
  Attribute one = kAttributes[random->Below(std::size(kAttributes))];
  one.first += static_cast<int>(random->Below(static_cast<size_t>(one.last - one.first) + 1));
  if (random->Chance(5)) one.first = random->Int(1400);
  return one;
}

int64_t AnyCount(Random* random) {
  if (random->Chance(60)) return 1;
  return random->Chance(80) ? static_cast<int64_t>(random->Below(9)) : random->Integer(70000);
}

}  // namespace

Graphs::~Graphs() {
  for (const Descriptor descriptor : pool_) {
    if (descriptor != nullptr) OOC_CUDNN(client_, cudnnBackendDestroyDescriptor)(descriptor);
  }
}

// The scratch memory becomes elements of the type.
void Graphs::Fill(Type type) {
  Random& random = client_.random;
  std::memset(client_.Scratch(), 0, kFilled * sizeof(int64_t));
  auto* const numbers = static_cast<int64_t*>(client_.Scratch());
  auto* const pointers = static_cast<void**>(client_.Scratch());
  const bool hostile = random.Chance(20);
  for (size_t i = 0; i < kFilled; ++i) {
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      pointers[i] = random.Chance(2) ? nullptr : Any();
    } else if (type == CUDNN_TYPE_HANDLE) {
      pointers[i] = client_.handle;
    } else if (type != CUDNN_TYPE_VOID_PTR) {
      numbers[i] = hostile ? random.Integer(40) : static_cast<int64_t>(1 + random.Below(4));
    }
  }
}

void Graphs::Replace() {
  Descriptor& place = pool_[client_.random.Below(pool_.size())];
  if (place != nullptr) {
    client_.Answered(OOC_CUDNN(client_, cudnnBackendDestroyDescriptor)(place));
  }
  place = nullptr;
  const auto type = static_cast<cudnnBackendDescriptorType_t>(
      client_.random.Chance(95) ? static_cast<int>(client_.random.Below(kDescriptors))
                                : client_.random.Int(40));
  client_.Answered(OOC_CUDNN(client_, cudnnBackendCreateDescriptor)(
      type, client_.random.Chance(2) ? nullptr : &place));
}

void Graphs::Set() {
  const Attribute one = AnyAttribute(&client_.random);
  const Type type = client_.random.Chance(90)
                        ? one.type
                        : static_cast<Type>(client_.random.Int(CUDNN_TYPE_NORM_MODE));
  Fill(type);
  const int64_t count = AnyCount(&client_.random);
  // As many as there is memory for; more are refused unread.
  const bool there = count <= int64_t{1} << 16;
  client_.Answered(OOC_CUDNN(client_, cudnnBackendSetAttribute)(
      Any(), static_cast<Name>(one.first), type, count,
      there && client_.random.Chance(2) ? nullptr : client_.Scratch()));
}

void Graphs::Get() {
  const Attribute one = AnyAttribute(&client_.random);
  const Type type = client_.random.Chance(90)
                        ? one.type
                        : static_cast<Type>(client_.random.Int(CUDNN_TYPE_NORM_MODE));
  Fill(CUDNN_TYPE_BACKEND_DESCRIPTOR);  // what is read into where the elements are descriptors
  int64_t count = 0;
  const int64_t requested = AnyCount(&client_.random);
  const cudnnStatus_t status = client_.Answered(OOC_CUDNN(client_, cudnnBackendGetAttribute)(
      Any(), static_cast<Name>(one.first), type, requested,
      client_.random.Chance(5) ? nullptr : &count,
      client_.random.Chance(10) ? nullptr : client_.Scratch()));
  client_.Expect(status != CUDNN_STATUS_SUCCESS || requested >= 0, "a negative count was served");
}

void Graphs::Call() {
  const size_t dice = client_.random.Below(100);
  if (dice < 12) {
    Replace();
  } else if (dice < 60) {
    Set();
  } else if (dice < 80) {
    Get();
  } else if (dice < 95) {
    client_.Answered(OOC_CUDNN(client_, cudnnBackendFinalize)(Any()));
  } else if (dice < 97) {
    client_.Answered(OOC_CUDNN(client_, cudnnBackendInitialize)(Any()));
  } else if (dice < 99) {
    client_.Answered(OOC_CUDNN(client_, cudnnBackendExecute)(client_.handle, Any(), Any()));
  } else {
    size_t bytes = 0;
    client_.Answered(OOC_CUDNN(client_, cudnnGetExecutionPlanWorkspaceSize)(client_.handle, Any(),
                                                                            Any(), &bytes));
  }
}

Graphs::Descriptor Graphs::Make(cudnnBackendDescriptorType_t type) {
  Descriptor made = nullptr;
  client_.Answered(OOC_CUDNN(client_, cudnnBackendCreateDescriptor)(type, &made));
  made_.push_back(made);
  return made;
}

// One in a hundred is set to something else.
void Graphs::SetOne(Descriptor in, Name name, Type type, int64_t count, const void* elements) {
  if (client_.random.Below(100) == 0) {
    Fill(type);
    elements = client_.Scratch();
    count = std::min<int64_t>(AnyCount(&client_.random), kFilled);
  }
  client_.Answered(OOC_CUDNN(client_, cudnnBackendSetAttribute)(in, name, type, count, elements));
}

void Graphs::SetNumbers(Descriptor in, Name name, int64_t count, const int64_t* numbers) {
  SetOne(in, name, CUDNN_TYPE_INT64, count, numbers);
}

void Graphs::SetPart(Descriptor in, Name name, Descriptor part) {
  client_.Answered(OOC_CUDNN(client_, cudnnBackendSetAttribute)(
      in, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part));
}

void Graphs::Finish(Descriptor descriptor) {
  if (client_.random.Below(100) == 0) return;
  client_.Answered(OOC_CUDNN(client_, cudnnBackendFinalize)(descriptor));
}

Graphs::Descriptor Graphs::Tensor(int64_t uid, const std::array<int64_t, 4>& dims, int dtype) {
  const Descriptor made = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto times = [](int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  };
  const int64_t plane = times(dims[2], dims[3]);
  const int64_t strides[] = {times(dims[1], plane), plane, dims[3], 1};
  const int64_t alignment = 16;
  // Dimensions and strides as they are: the tensor lies in memory that is there.
  client_.Answered(OOC_CUDNN(client_, cudnnBackendSetAttribute)(made, CUDNN_ATTR_TENSOR_DATA_TYPE,
                                                                CUDNN_TYPE_DATA_TYPE, 1, &dtype));
  client_.Answered(OOC_CUDNN(client_, cudnnBackendSetAttribute)(made, CUDNN_ATTR_TENSOR_DIMENSIONS,
                                                                CUDNN_TYPE_INT64, 4, dims.data()));
  client_.Answered(OOC_CUDNN(client_, cudnnBackendSetAttribute)(made, CUDNN_ATTR_TENSOR_STRIDES,
                                                                CUDNN_TYPE_INT64, 4, strides));
  SetNumbers(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid);
  SetNumbers(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
  Finish(made);
  return made;
}

Graphs::Descriptor Graphs::Graph(const Shape& shape) {
  const Descriptor xd = Tensor(1, shape.x, shape.dtype), wd = Tensor(2, shape.w, shape.dtype);
  const Descriptor yd = Tensor(3, shape.y, shape.dtype);
  const Descriptor window = Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t rank = 2;
  SetNumbers(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &rank);
  SetNumbers(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, shape.before.data());
  SetNumbers(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, shape.after.data());
  SetNumbers(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, shape.dilation.data());
  SetNumbers(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, shape.stride.data());
  Finish(window);
  const Descriptor op = Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  SetPart(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, xd);
  SetPart(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, wd);
  SetPart(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, yd);
  SetPart(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window);
  Finish(op);
  const Descriptor graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  SetPart(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
  Finish(graph);
  return graph;
}

void Graphs::Forget() {
  for (const Descriptor made : made_) {
    client_.Answered(OOC_CUDNN(client_, cudnnBackendDestroyDescriptor)(made));
  }
  made_.clear();
}

Graphs::Shape Graphs::AnyShape() {
  Random& random = client_.random;
  const auto small = [&](size_t most) { return static_cast<int64_t>(1 + random.Below(most)); };
  Shape shape;
  shape.x = {small(2), small(3), small(4), small(4)};
  shape.w = {small(3), shape.x[1], 1, 1};
  shape.y = {shape.x[0], shape.w[0], shape.x[2], shape.x[3]};
  shape.dtype = static_cast<int>(random.Below(3));
  return shape;
}

// Nothing is computed, so numbers may be any: a few of them are.
void Graphs::Judge() {
  Random& random = client_.random;
  Shape shape = AnyShape();
  int64_t* const places[] = {shape.x.data(),       shape.w.data(),     shape.y.data(),
                             shape.before.data(),  shape.after.data(), shape.stride.data(),
                             shape.dilation.data()};
  const int64_t same = random.Integer(64);  // where extents must agree
  for (size_t i = 0; i < 1 + random.Below(6); ++i) {
    const size_t which = random.Below(std::size(places));
    places[which][random.Below(which < 3 ? 4 : 2)] = random.Chance(50) ? same : random.Integer(64);
  }
  Graph(shape);
  Forget();
}

void Graphs::Run() {
  Random& random = client_.random;
  const Descriptor graph = Graph(AnyShape());
  const Descriptor heuristics = Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  SetPart(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  Finish(heuristics);
  Descriptor config = Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int64_t count = 0;
  client_.Answered(OOC_CUDNN(client_, cudnnBackendGetAttribute)(
      heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
      &config));
  const Descriptor plan = Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  SetPart(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  Finish(plan);
  const Descriptor pack = Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const int64_t uids[] = {1, 2, 3};
  void* const pointers[] = {client_.Data(), client_.Data(),
                            random.Chance(3) ? nullptr : client_.Data()};
  SetNumbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, uids);
  SetOne(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
  Finish(pack);
  const cudnnStatus_t status =
      client_.Answered(OOC_CUDNN(client_, cudnnBackendExecute)(client_.handle, plan, pack));
  if (status == CUDNN_STATUS_SUCCESS) ++client_.computed;
  Forget();
}

}  // namespace oocdnn::fuzz
