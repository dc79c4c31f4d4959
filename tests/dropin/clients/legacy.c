/* A program written for cuDNN's legacy interface, as such programs are: one forward convolution with
 * bias and activation, and its gradients, in host memory. Compiles with
 * NVIDIA's header and with ours. Prints "ok", or the place and the status. */
#include <cudnn.h>
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

enum { N = 2, C = 4, K = 6, H = 9, W = 7, R = 3, S = 3, G = 2, P = 5, Q = 4 };

static float x[N * C * H * W], w[K * C / G * R * S], y[N * K * P * Q], b[K], db[K];
static float dx[N * C * H * W], dw[K * C / G * R * S];

static void fill(float* data, size_t count, int seed) {
  for (size_t i = 0; i < count; ++i) data[i] = (float)((int)(i * 7 + (size_t)seed) % 5 - 2);
}

/* The input that output (p, q) reads with tap (r, s), or null: stride 2, padding 1. */
static float* at(float* image, int n, int c, int p, int q, int r, int s) {
  const int h = 2 * p - 1 + r, v = 2 * q - 1 + s;
  if (h < 0 || h >= H || v < 0 || v >= W) return NULL;
  return image + ((n * C + c) * H + h) * W + v;
}

static int compare(const char* what, const float* have, const float* want, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (have[i] != want[i]) {
      printf("%s[%zu] is %g, not %g\n", what, i, have[i], want[i]);
      return 1;
    }
  }
  return 0;
}

int main(void) {
  fill(x, sizeof x / sizeof *x, 1);
  fill(w, sizeof w / sizeof *w, 2);
  fill(b, K, 3);
  cudnnHandle_t handle;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t xd, yd, bd;
  CHECK(cudnnCreateTensorDescriptor(&xd));
  CHECK(cudnnSetTensor4dDescriptor(xd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H, W));
  cudnnFilterDescriptor_t wd;
  CHECK(cudnnCreateFilterDescriptor(&wd));
  CHECK(cudnnSetFilter4dDescriptor(wd, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, K, C / G, R, S));
  cudnnConvolutionDescriptor_t cd;
  CHECK(cudnnCreateConvolutionDescriptor(&cd));
  CHECK(cudnnSetConvolution2dDescriptor(cd, 1, 1, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
  CHECK(cudnnSetConvolutionGroupCount(cd, G));
  int n, k, p, q;
  CHECK(cudnnGetConvolution2dForwardOutputDim(cd, xd, wd, &n, &k, &p, &q));
  if (n != N || k != K || p != P || q != Q) return printf("%d %d %d %d\n", n, k, p, q);
  CHECK(cudnnCreateTensorDescriptor(&yd));
  CHECK(cudnnSetTensor4dDescriptor(yd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, k, p, q));
  CHECK(cudnnCreateTensorDescriptor(&bd));
  CHECK(cudnnSetTensor4dDescriptor(bd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, K, 1, 1));
  cudnnActivationDescriptor_t ad;
  CHECK(cudnnCreateActivationDescriptor(&ad));
  CHECK(cudnnSetActivationDescriptor(ad, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));

  int found = 0;
  cudnnConvolutionFwdAlgoPerf_t forward[8];
  CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle, xd, wd, cd, yd, 8, &found, forward));
  size_t bytes = 0;
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, xd, wd, cd, yd, forward[0].algo, &bytes));
  void* const workspace = malloc(bytes + 1);
  const float one = 1.0F, zero = 0.0F;
  /* z == y with a factor of 0: what is there must not be read. */
  for (size_t i = 0; i < sizeof y / sizeof *y; ++i) y[i] = 0.0F / zero;
  CHECK(cudnnConvolutionBiasActivationForward(handle, &one, xd, x, wd, w, cd, forward[0].algo,
                                              workspace, bytes, &zero, yd, y, bd, b, ad, yd, y));

  cudnnConvolutionBwdDataAlgoPerf_t data[8];
  CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, wd, yd, cd, xd, 8, &found, data));
  cudnnConvolutionBwdFilterAlgoPerf_t filter[8];
  CHECK(cudnnFindConvolutionBackwardFilterAlgorithm(handle, xd, yd, cd, wd, 8, &found, filter));
  static float want_y[N * K * P * Q], want_dx[N * C * H * W], want_dw[K * C / G * R * S], want_db[K];
  for (int i = 0; i < N * K * P * Q; ++i) {
    const int o = i / (P * Q) % K, image = i / (P * Q * K);
    float sum = b[o];
    for (int c = 0; c < C / G; ++c) {
      for (int r = 0; r < R; ++r) {
        for (int s = 0; s < S; ++s) {
          const float* const in = at(x, image, o / (K / G) * (C / G) + c, i / Q % P, i % Q, r, s);
          if (in != NULL) sum += *in * w[((o * C / G + c) * R + r) * S + s];
        }
      }
    }
    want_y[i] = sum > 0 ? sum : 0;
  }
  CHECK(cudnnConvolutionBackwardData(handle, &one, wd, w, yd, y, cd, data[0].algo, NULL, 0, &zero,
                                     xd, dx));
  CHECK(cudnnConvolutionBackwardFilter(handle, &one, xd, x, yd, y, cd, filter[0].algo, NULL, 0,
                                       &zero, wd, dw));
  CHECK(cudnnConvolutionBackwardBias(handle, &one, yd, y, &zero, bd, db));
  for (int i = 0; i < N * K * P * Q; ++i) {
    const int o = i / (P * Q) % K, image = i / (P * Q * K);
    want_db[o] += want_y[i];
    for (int c = 0; c < C / G; ++c) {
      for (int r = 0; r < R; ++r) {
        for (int s = 0; s < S; ++s) {
          const int channel = o / (K / G) * (C / G) + c, tap = ((o * C / G + c) * R + r) * S + s;
          const float* const in = at(x, image, channel, i / Q % P, i % Q, r, s);
          if (in == NULL) continue;
          want_dw[tap] += *in * want_y[i];
          *at(want_dx, image, channel, i / Q % P, i % Q, r, s) += w[tap] * want_y[i];
        }
      }
    }
  }
  const int wrong = compare("y", y, want_y, sizeof y / sizeof *y) |
                    compare("dx", dx, want_dx, sizeof dx / sizeof *dx) |
                    compare("dw", dw, want_dw, sizeof dw / sizeof *dw) |
                    compare("db", db, want_db, K);
  free(workspace);
  CHECK(cudnnDestroyActivationDescriptor(ad));
  CHECK(cudnnDestroyConvolutionDescriptor(cd));
  CHECK(cudnnDestroyFilterDescriptor(wd));
  CHECK(cudnnDestroyTensorDescriptor(bd));
  CHECK(cudnnDestroyTensorDescriptor(yd));
  CHECK(cudnnDestroyTensorDescriptor(xd));
  CHECK(cudnnDestroy(handle));
  if (wrong == 0) puts("ok");
  return wrong;
}
