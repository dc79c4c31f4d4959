/* A program written for cuDNN's legacy interface whose images lie in host memory: pinned, where it
 * is compiled with PINNED and CUDA, else from malloc. A layer of VGG16 on a batch of N images, N
 * being its argument. Prints figures and "ok", or what is wrong. */
#define _POSIX_C_SOURCE 200112L
#ifdef PINNED
#include <cuda_runtime_api.h>
#endif
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                  \
  do {                                                                               \
    const cudnnStatus_t status = (call);                                             \
    if (status != CUDNN_STATUS_SUCCESS) {                                            \
      char text[256] = "";                                                           \
      cudnnGetLastErrorString(text, sizeof text);                                    \
      printf("fail line %d: %s: %s\n", __LINE__, cudnnGetErrorString(status), text); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

enum { C = 64, K = 64, SIDE = 224, TAPS = 3, TURNS = 5, PLACES = 10000 };

static float* room(size_t count) {
  void* memory = NULL;
#ifdef PINNED
  if (cudaHostAlloc(&memory, count * sizeof(float), cudaHostAllocDefault) != cudaSuccess) exit(2);
#else
  memory = malloc(count * sizeof(float));
#endif
  if (memory == NULL) exit(2);
  return memory;
}

static void* workspace_of(size_t bytes) {
  void* memory = NULL;
#ifdef PINNED
  if (cudaMalloc(&memory, bytes) != cudaSuccess) exit(2);
#else
  memory = malloc(bytes);
#endif
  if (memory == NULL) exit(2);
  return memory;
}

static void finish(void) {
#ifdef PINNED
  if (cudaDeviceSynchronize() != cudaSuccess) exit(2);
#endif
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#ifdef PINNED
/* Milliseconds in which as much crosses both ways at once, from and to the same memory: what a page
 * costs depends on where it lies. */
static double wire(float* out, size_t out_bytes, const float* in, size_t in_bytes) {
  void *from = workspace_of(out_bytes), *to = workspace_of(in_bytes);
  cudaStream_t inward, outward;
  if (cudaStreamCreate(&inward) != cudaSuccess || cudaStreamCreate(&outward) != cudaSuccess)
    exit(2);
  double best = 1e9;
  for (int turn = 0; turn < TURNS; ++turn) {
    const double begin = now();
    if (cudaMemcpyAsync(to, in, in_bytes, cudaMemcpyHostToDevice, inward) != cudaSuccess) exit(2);
    if (cudaMemcpyAsync(out, from, out_bytes, cudaMemcpyDeviceToHost, outward) != cudaSuccess) {
      exit(2);
    }
    finish();
    const double seconds = now() - begin;
    if (seconds < best) best = seconds;
  }
  if (cudaFree(from) != cudaSuccess || cudaFree(to) != cudaSuccess) exit(2);
  return best * 1e3;
}
#endif

/* Small integers: their sums are exact, in TF32 too. */
static int value(size_t i, int values) {
  const unsigned long long mixed = (i + 1) * 0x9E3779B97F4A7C15ull;
  return (int)((mixed >> 40) % (unsigned)values) - values / 2;
}

static float exact(const float* x, const float* w, size_t n, int k, int p, int q) {
  float sum = 0;
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < TAPS; ++r) {
      for (int s = 0; s < TAPS; ++s) {
        const int h = p + r - 1, v = q + s - 1;
        if (h < 0 || h >= SIDE || v < 0 || v >= SIDE) continue;
        sum += x[((n * C + (size_t)c) * SIDE + (size_t)h) * SIDE + (size_t)v] *
               w[((k * C + c) * TAPS + r) * TAPS + s];
      }
    }
  }
  return sum;
}

int main(int count, char** arguments) {
  const int images = count > 1 ? atoi(arguments[1]) : 1;
  const size_t x_count = (size_t)images * C * SIDE * SIDE,
               y_count = (size_t)images * K * SIDE * SIDE;
  const size_t w_count = (size_t)K * C * TAPS * TAPS;
  float *const x = room(x_count), *const w = room(w_count), *const y = room(y_count);
  for (size_t i = 0; i < x_count; ++i) x[i] = (float)value(i, 5);
  for (size_t i = 0; i < w_count; ++i) w[i] = (float)value(i, 3);
  for (size_t i = 0; i < y_count; ++i) y[i] = -1e9F;

  cudnnHandle_t handle;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t xd, yd;
  cudnnFilterDescriptor_t wd;
  cudnnConvolutionDescriptor_t cd;
  CHECK(cudnnCreateTensorDescriptor(&xd));
  CHECK(cudnnSetTensor4dDescriptor(xd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, images, C, SIDE, SIDE));
  CHECK(cudnnCreateTensorDescriptor(&yd));
  CHECK(cudnnSetTensor4dDescriptor(yd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, images, K, SIDE, SIDE));
  CHECK(cudnnCreateFilterDescriptor(&wd));
  CHECK(cudnnSetFilter4dDescriptor(wd, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, K, C, TAPS, TAPS));
  CHECK(cudnnCreateConvolutionDescriptor(&cd));
  CHECK(cudnnSetConvolution2dDescriptor(cd, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
  const cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  size_t bytes = 0;
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, xd, wd, cd, yd, algorithm, &bytes));
  void* const workspace = workspace_of(bytes + 1);
  double best = 1e9;
  for (int turn = 0; turn < TURNS; ++turn) {
    const float one = 1, zero = 0;
    const double begin = now();
    CHECK(cudnnConvolutionForward(handle, &one, xd, x, wd, w, cd, algorithm, workspace, bytes,
                                  &zero, yd, y));
    finish();
    const double seconds = now() - begin;
    if (seconds < best) best = seconds;
  }
  printf("figure ms %.4f\n", best * 1e3);

  int wrong = 0;
  for (size_t i = 0; i < PLACES; ++i) {
    const size_t at = (i * 0x9E3779B97F4A7C15ull >> 20) % y_count;
    const int q = (int)(at % SIDE), p = (int)(at / SIDE % SIDE), k = (int)(at / SIDE / SIDE % K);
    const float want = exact(x, w, at / SIDE / SIDE / K, k, p, q);
    if (y[at] != want && wrong++ == 0) printf("fail y[%zu] is %g, not %g\n", at, y[at], want);
  }
#ifdef PINNED
  printf("figure wire-ms %.4f\n", wire(y, y_count * sizeof *y, x, x_count * sizeof *x));
#endif
  CHECK(cudnnDestroyConvolutionDescriptor(cd));
  CHECK(cudnnDestroyFilterDescriptor(wd));
  CHECK(cudnnDestroyTensorDescriptor(yd));
  CHECK(cudnnDestroyTensorDescriptor(xd));
  CHECK(cudnnDestroy(handle));
  if (wrong == 0) puts("ok");
  return wrong != 0;
}
