/* A program written for cuDNN's graph API: convolution, bias and relu as one graph, found by
 * heuristics; its sub-descriptors are destroyed as soon as the next is made. Compiles with NVIDIA's
 * header and with ours. Prints "ok", or the place and the status. */
#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudnnStatus_t status = (call);                                                \
    if (status != CUDNN_STATUS_SUCCESS) {                                               \
      char text[256] = "";                                                              \
      cudnnGetLastErrorString(text, sizeof text);                                       \
      printf("line %d: %s: %s\n", __LINE__, cudnnGetErrorString(status), text);         \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

typedef cudnnBackendDescriptor_t Descriptor;
enum { C = 3, K = 2, H = 6, W = 5 };

static Descriptor make(cudnnBackendDescriptorType_t type) {
  Descriptor descriptor;
  CHECK(cudnnBackendCreateDescriptor(type, &descriptor));
  return descriptor;
}

static void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void* values) {
  CHECK(cudnnBackendSetAttribute(d, name, type, count, values));
}

static Descriptor done(Descriptor descriptor) {
  CHECK(cudnnBackendFinalize(descriptor));
  return descriptor;
}

static Descriptor tensor(int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w, bool hidden) {
  const Descriptor d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t dims[] = {n, c, h, w}, strides[] = {c * h * w, h * w, w, 1}, alignment = 16;
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
  set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  if (hidden) set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &hidden);
  return done(d);
}

static Descriptor convolution(void) {
  const Descriptor d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t axes = 2, ones[] = {1, 1};
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
  set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
  set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
  set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
  set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
  return done(d);
}

static Descriptor pointwise(cudnnPointwiseMode_t mode, Descriptor x, Descriptor b, Descriptor y) {
  const Descriptor with = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  set(with, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(with, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
  done(with);
  const Descriptor op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &with);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
  if (b) set(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b);
  CHECK(cudnnBackendDestroyDescriptor(with));
  return done(op);
}

/* The plan of the first engine configuration that heuristics give for the graph. */
static Descriptor plan_of(Descriptor graph) {
  const Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_INSTANT;
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  done(heuristics);
  int64_t count = 0;
  CHECK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
  if (count < 1) exit(3);
  Descriptor config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  CHECK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config));
  CHECK(cudnnBackendDestroyDescriptor(heuristics));
  Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  CHECK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
  cudnnBackendNumericalNote_t notes[10];
  CHECK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, 10, &count, notes));
  CHECK(cudnnBackendDestroyDescriptor(engine));
  const Descriptor plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
  CHECK(cudnnBackendDestroyDescriptor(config));
  return done(plan);
}

int main(void) {
  static float x[C * H * W], w[K * C * 9], b[K], y[K * H * W];
  for (int i = 0; i < C * H * W; ++i) x[i] = (float)(i % 5 - 2);
  for (int i = 0; i < K * C * 9; ++i) w[i] = (float)(i % 3 - 1);
  for (int i = 0; i < K; ++i) b[i] = (float)i;

  Descriptor tensors[] = {tensor('x', 1, C, H, W, false), tensor('w', K, C, 3, 3, false),
                          tensor('A', 1, K, H, W, true),  tensor('b', 1, K, 1, 1, false),
                          tensor('B', 1, K, H, W, true),  tensor('y', 1, K, H, W, false)};
  Descriptor how = convolution();
  Descriptor op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  const float one = 1, zero = 0;
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensors);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensors + 1);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensors + 2);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &how);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
  CHECK(cudnnBackendDestroyDescriptor(how));
  Descriptor ops[] = {done(op),
                      pointwise(CUDNN_POINTWISE_ADD, tensors[2], tensors[3], tensors[4]),
                      pointwise(CUDNN_POINTWISE_RELU_FWD, tensors[4], NULL, tensors[5])};
  for (int i = 0; i < 6; ++i) CHECK(cudnnBackendDestroyDescriptor(tensors[i]));
  cudnnHandle_t handle;
  CHECK(cudnnCreate(&handle));
  const Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 3, ops);
  done(graph);
  const Descriptor plan = plan_of(graph);
  for (int i = 0; i < 3; ++i) CHECK(cudnnBackendDestroyDescriptor(ops[i]));
  CHECK(cudnnBackendDestroyDescriptor(graph));
  int64_t bytes = -1, count = 0;
  CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                 &count, &bytes));
  void* const workspace = malloc((size_t)bytes + 1);

  const Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void* pointers[] = {b, y, w, x};
  const int64_t uids[] = {'b', 'y', 'w', 'x'};
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 4, pointers);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 4, uids);
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  done(pack);
  CHECK(cudnnBackendExecute(handle, plan, pack));
  CHECK(cudnnBackendDestroyDescriptor(pack));
  CHECK(cudnnBackendDestroyDescriptor(plan));
  CHECK(cudnnDestroy(handle));
  free(workspace);

  for (int i = 0; i < K * H * W; ++i) {
    const int k = i / (H * W), row = i / W % H, column = i % W;
    float sum = b[k];
    for (int tap = 0; tap < C * 9; ++tap) {
      const int h = row + tap / 3 % 3 - 1, v = column + tap % 3 - 1;
      if (h < 0 || h >= H || v < 0 || v >= W) continue;
      sum += x[(tap / 9 * H + h) * W + v] * w[k * C * 9 + tap];
    }
    if (y[i] != fmaxf(sum, 0)) return printf("y[%d] is %g, not %g\n", i, y[i], fmaxf(sum, 0));
  }
  puts("ok");
  return 0;
}
