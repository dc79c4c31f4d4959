"""Descriptors, of the legacy interface and of graphs, come and go without a trace."""

import pytest
from dropin.building import build, run

PROGRAM = """
#include <cudnn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static int cycle(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t tensor;
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t convolution;
  cudnnActivationDescriptor_t activation;
  cudnnPoolingDescriptor_t pooling;
  cudnnOpTensorDescriptor_t operation;
  const int pad[3] = {0}, one[3] = {1, 1, 1};
  return cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&tensor) ||
         cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 3, 4) ||
         cudnnCreateFilterDescriptor(&filter) || cudnnCreateConvolutionDescriptor(&convolution) ||
         cudnnSetConvolutionNdDescriptor(convolution, 3, pad, one, one, CUDNN_CONVOLUTION,
                                         CUDNN_DATA_FLOAT) ||
         cudnnCreateActivationDescriptor(&activation) ||
         cudnnCreatePoolingDescriptor(&pooling) || cudnnCreateOpTensorDescriptor(&operation) ||
         !cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 0, 2, 3, 4) ||
         cudnnDestroyOpTensorDescriptor(operation) || cudnnDestroyPoolingDescriptor(pooling) ||
         cudnnDestroyActivationDescriptor(activation) ||
         cudnnDestroyConvolutionDescriptor(convolution) || cudnnDestroyFilterDescriptor(filter) ||
         cudnnDestroyTensorDescriptor(tensor) || cudnnDestroy(handle);
}

/* One convolution from its tensors to a plan; the parts go before what was made of them. */
enum { kParts = 9 };
static cudnnBackendDescriptor_t parts[kParts];
static int made;

static cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
  return cudnnBackendCreateDescriptor(type, &parts[made]) ? NULL : parts[made++];
}

static int numbers(cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t name, int64_t count,
                   const int64_t* values) {
  return cudnnBackendSetAttribute(part, name, CUDNN_TYPE_INT64, count, values);
}

static int names(cudnnBackendDescriptor_t part, cudnnBackendAttributeName_t name,
                 cudnnBackendDescriptor_t other) {
  return cudnnBackendSetAttribute(part, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static int tensor(int64_t uid, const int64_t* dims, const int64_t* strides) {
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const int64_t alignment = 16;
  const cudnnBackendDescriptor_t part = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  return cudnnBackendSetAttribute(part, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                  &type) ||
         numbers(part, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims) ||
         numbers(part, CUDNN_ATTR_TENSOR_STRIDES, 4, strides) ||
         numbers(part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) ||
         numbers(part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid) || cudnnBackendFinalize(part);
}

static int window(void) {
  const int64_t rank = 2, ones[] = {1, 1}, zeros[] = {0, 0};
  const cudnnBackendDescriptor_t part = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  return numbers(part, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &rank) ||
         numbers(part, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, zeros) ||
         numbers(part, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, zeros) ||
         numbers(part, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, ones) ||
         numbers(part, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, ones) ||
         cudnnBackendFinalize(part);
}

static int graph(void) {
  const cudnnBackendDescriptor_t op =
      make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  const cudnnBackendDescriptor_t all = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  return names(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, parts[0]) ||
         names(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, parts[1]) ||
         names(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, parts[2]) ||
         names(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, parts[3]) ||
         cudnnBackendFinalize(op) || names(all, CUDNN_ATTR_OPERATIONGRAPH_OPS, op) ||
         !names(all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, op) || cudnnBackendFinalize(all);
}

static int plan(void) {
  const cudnnBackendDescriptor_t engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const cudnnBackendDescriptor_t chosen = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  const cudnnBackendDescriptor_t made_plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  return names(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, parts[5]) ||
         cudnnBackendFinalize(engine) || names(chosen, CUDNN_ATTR_ENGINECFG_ENGINE, engine) ||
         cudnnBackendFinalize(chosen) ||
         names(made_plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, chosen) ||
         cudnnBackendFinalize(made_plan);
}

static int cycle_graph(void) {
  const int64_t x[] = {1, 2, 4, 4}, x_strides[] = {32, 16, 4, 1};
  const int64_t w[] = {3, 2, 3, 3}, w_strides[] = {18, 9, 3, 1};
  const int64_t y[] = {1, 3, 2, 2}, y_strides[] = {12, 4, 2, 1};
  made = 0;
  if (tensor(1, x, x_strides) || tensor(2, w, w_strides) || tensor(3, y, y_strides) ||
      window() || graph() || plan() || made != kParts) {
    return 1;
  }
  for (int i = 0; i < kParts; ++i) {
    if (cudnnBackendDestroyDescriptor(parts[i])) return 1;
  }
  return 0;
}

int main(int count, char** arguments) {
  for (int i = 0; i < 1000; ++i) if (cycle() || cycle_graph()) return 1;
  const size_t before = mallinfo2().uordblks;
  for (int i = count > 1 ? atoi(arguments[1]) : 1; i > 0; --i) {
    if (cycle() || cycle_graph()) return 2;
  }
  printf("%td\\n", (ptrdiff_t)(mallinfo2().uordblks - before));
  return 0;
}
"""


@pytest.mark.parametrize("cycles", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_descriptors_leave_nothing_behind(tmp_path, cycles):
    source = tmp_path / "cycles.c"
    source.write_text(PROGRAM)
    done = run([build(source, tmp_path / "cycles"), str(cycles)])
    assert (done.returncode, done.stdout) == (0, "0\n")
