/* Computes, forks, computes in the child and again in the parent, and leaves without giving back
 * anything; some of it from a destructor. */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static cudnnHandle_t handle;
static cudnnTensorDescriptor_t x;
static cudnnFilterDescriptor_t w;
static cudnnConvolutionDescriptor_t convolution;
static float data[64], filter[1] = {2}, out[64];

static int compute(void) {
  const float one = 1, zero = 0;
  out[63] = 0;
  const cudnnStatus_t status = cudnnConvolutionForward(
      handle, &one, x, data, w, filter, convolution, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL,
      0, &zero, x, out);
  return status != CUDNN_STATUS_SUCCESS || out[63] != 126;
}

__attribute__((destructor)) static void leave(void) {
  if (handle != NULL && compute() != 0) _exit(9);
}

int main(void) {
  for (int i = 0; i < 64; ++i) data[i] = (float)i;
  cudnnCreate(&handle);
  cudnnCreateTensorDescriptor(&x);
  cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 8, 8);
  cudnnCreateFilterDescriptor(&w);
  cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1, 1, 1, 1);
  cudnnCreateConvolutionDescriptor(&convolution);
  cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                  CUDNN_DATA_FLOAT);
  if (compute() != 0) return 2;
  const pid_t child = fork();
  if (child == 0) exit(compute() != 0 ? 3 : 0);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return 4;
  if (compute() != 0) return 5;
  puts("ok");
  return 0;
}
