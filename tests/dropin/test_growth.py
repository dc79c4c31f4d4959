"""Descriptors come and go without a trace."""

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

int main(int count, char** arguments) {
  for (int i = 0; i < 1000; ++i) if (cycle()) return 1;
  const size_t before = mallinfo2().uordblks;
  for (int i = count > 1 ? atoi(arguments[1]) : 1; i > 0; --i) if (cycle()) return 2;
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
