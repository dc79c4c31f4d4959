/* Calls of the graph API whose counts, types and depths no correct program passes. Each is answered
 * with a status. Prints "ok", or the place and the status. */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(wanted, call)                                             \
  do {                                                                   \
    const int answer_ = (int)(call);                                     \
    if (answer_ != (wanted)) {                                           \
      printf("line %d: %d, not %d\n", __LINE__, answer_, (int)(wanted)); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

typedef cudnnBackendDescriptor_t Descriptor;
enum { BAD = 2000, ATTRIBUTE_TYPE = 2010, NOT_SUPPORTED = 3000, PATTERN = 3001, DEEP = 2000000 };
static const int64_t kHuge = (int64_t)1 << 61;

static Descriptor make(cudnnBackendDescriptorType_t type) {
  Descriptor descriptor;
  EXPECT(0, cudnnBackendCreateDescriptor(type, &descriptor));
  return descriptor;
}

static void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void* values) {
  EXPECT(0, cudnnBackendSetAttribute(d, name, type, count, values));
}

static Descriptor unfinished(const int64_t dims[4], const int64_t strides[4]) {
  static int64_t uid;
  const Descriptor d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t alignment = 16;
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
  set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  ++uid;
  return d;
}

static const int64_t kOnes[4] = {1, 1, 1, 1};

static Descriptor tensor(int64_t n, int64_t c, int64_t h, int64_t w) {
  const int64_t dims[4] = {n, c, h, w};
  const Descriptor d = unfinished(dims, kOnes);
  EXPECT(0, cudnnBackendFinalize(d));
  return d;
}

static void counts(void) {
  const Descriptor d = tensor(1, 2, 3, 4);
  int64_t numbers[8] = {0};
  int64_t count = -7;
  const int64_t requests[] = {-1, -kHuge, INT64_MIN};
  for (int i = 0; i < 3; ++i) {
    EXPECT(BAD, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                                         requests[i], &count, numbers));
  }
  EXPECT(-7, count);
  EXPECT(0, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kHuge,
                                     &count, numbers));
  EXPECT(4, count);
  const int64_t given[] = {-1, kHuge, INT64_MAX, INT64_MIN, 0};
  const Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const Descriptor other = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  for (int i = 0; i < 5; ++i) {
    EXPECT(BAD, cudnnBackendSetAttribute(other, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                                         given[i], numbers));
    EXPECT(BAD, cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, given[i], &d));
    EXPECT(BAD, cudnnBackendSetAttribute(other, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
                                         given[i], numbers));
    if (given[i] == 0) continue;
    EXPECT(BAD, cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                         given[i], numbers));
    EXPECT(BAD, cudnnBackendSetAttribute(other, CUDNN_ATTR_TENSOR_CONSTANT_VALUE,
                                         CUDNN_TYPE_FRACTION, given[i], numbers));
  }
  EXPECT(BAD, cudnnBackendSetAttribute(other, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2,
                                       numbers));
  EXPECT(ATTRIBUTE_TYPE, cudnnBackendSetAttribute(other, CUDNN_ATTR_TENSOR_CONSTANT_VALUE,
                                                  (cudnnBackendAttributeType_t)999, 1, numbers));
}

static void axes(void) {
  const int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  const int64_t strides[4] = {-48, 16, 4, 1};
  const Descriptor many = unfinished(dims, kOnes);
  set(many, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, dims);
  set(many, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 9, dims);
  EXPECT(BAD, cudnnBackendFinalize(many));
  EXPECT(BAD, cudnnBackendFinalize(unfinished(dims, strides)));
}

static Descriptor graph_of(Descriptor x, Descriptor w, Descriptor y) {
  const Descriptor window = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t rank = 2, zeros[2] = {0, 0};
  set(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &rank);
  set(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, zeros);
  set(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, zeros);
  set(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, kOnes);
  set(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, kOnes);
  EXPECT(0, cudnnBackendFinalize(window));
  const Descriptor op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, part, 1, &x);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, part, 1, &w);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, part, 1, &y);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part, 1, &window);
  EXPECT(0, cudnnBackendFinalize(op));
  const Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, part, 1, &op);
  return graph;
}

/* Channels whose quotient is no int, and bytes that no int64 counts. */
static void sizes(void) {
  const int64_t most = (int64_t)1 << 33;
  EXPECT(PATTERN, cudnnBackendFinalize(
                      graph_of(tensor(1, most, 1, 1), tensor(1, 1, 1, 1), tensor(1, 1, 1, 1))));
  EXPECT(PATTERN, cudnnBackendFinalize(
                      graph_of(tensor(1, 1, 1, 1), tensor(1, 2, 1, 1), tensor(1, 1, 1, 1))));
  EXPECT(BAD, cudnnBackendFinalize(graph_of(tensor(kHuge, 1, kHuge, kHuge), tensor(1, 1, 1, 1),
                                            tensor(kHuge, 1, kHuge, kHuge))));
}

/* Results are read as descriptors only. */
static void results(void) {
  const Descriptor graph = graph_of(tensor(1, 1, 1, 1), tensor(1, 1, 1, 1), tensor(1, 1, 1, 1));
  EXPECT(0, cudnnBackendFinalize(graph));
  const Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  EXPECT(0, cudnnBackendFinalize(heuristics));
  int64_t number = 5, count = 0;
  EXPECT(ATTRIBUTE_TYPE, cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_INT64, 1, &count, &number));
  Descriptor config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  EXPECT(BAD, cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, -1, &count, &config));
  EXPECT(0, cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config));
}

/* Each tensor names the one before, as if for its ragged offsets. */
static void chain(void) {
  Descriptor last = tensor(1, 1, 1, 1);
  int status = 0;
  for (int i = 0; i < DEEP && status == 0; ++i) {
    const Descriptor next = unfinished(kOnes, kOnes);
    status = (int)cudnnBackendSetAttribute(next, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &last);
    if (status == 0) EXPECT(0, cudnnBackendFinalize(next));
    EXPECT(0, cudnnBackendDestroyDescriptor(last));
    last = next;
  }
  EXPECT(0, cudnnBackendDestroyDescriptor(last));
  EXPECT(NOT_SUPPORTED, status);
}

/* What is read replaces what it is read from. */
static void into_itself(void) {
  const Descriptor inner[2] = {tensor(1, 1, 1, 1), tensor(2, 1, 1, 1)};
  Descriptor outer = unfinished(kOnes, kOnes);
  set(outer, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, inner);
  EXPECT(0, cudnnBackendFinalize(outer));
  EXPECT(0, cudnnBackendDestroyDescriptor(inner[0]));
  EXPECT(0, cudnnBackendDestroyDescriptor(inner[1]));
  Descriptor places[2] = {outer, outer};
  int64_t count = 0, dims[4] = {0};
  EXPECT(0, cudnnBackendGetAttribute(outer, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, &count, places));
  EXPECT(2, count);
  EXPECT(0, cudnnBackendGetAttribute(outer, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
                                     &count, dims));
  EXPECT(2, dims[0]);
}

int main(int arguments, char** names) {
  static void (*const parts[])(void) = {counts, axes, sizes, results, chain, into_itself};
  if (arguments != 2) return 2;
  parts[atoi(names[1])]();
  printf("ok\n");
  return 0;
}
