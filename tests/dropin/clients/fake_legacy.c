/* A library in the place of the real cuDNN, with as much of the legacy interface as one convolution
 * takes. It computes nothing: what it is asked to compute gets the value 7 in its first element, so that a
 * test sees who was asked. */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudnnContext {
  cudaStream_t stream;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int rank, dims[8], stride[8];
};
struct cudnnConvolutionStruct {
  int rank, pad[8], stride[8], dilation[8], groups;
  cudnnConvolutionMode_t mode;
  cudnnDataType_t type;
  cudnnMathType_t math;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode;
  cudnnNanPropagation_t nans;
  double coef;
};

static cudnnStatus_t make(void* place, size_t bytes) {
  void* const made = calloc(1, bytes);
  memcpy(place, &made, sizeof made);
  return made != NULL ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

static void copy(int* to, const int* from, int count) {
  if (to != NULL) memcpy(to, from, (size_t)count * sizeof *to);
}

static cudnnStatus_t mark(void* y) {
  *(float*)y = 7;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) { return 91900; }
const char* cudnnGetErrorString(cudnnStatus_t s) { return s ? "CUDNN_STATUS_FAKE" : ""; }
void cudnnGetLastErrorString(char* text, size_t bytes) { snprintf(text, bytes, "the real one's"); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return make(handle, sizeof **handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return free(handle), CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) { return make(d, sizeof **d); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) {
  return free(d), CUDNN_STATUS_SUCCESS;
}
/* As the real one: 2^31 elements are too many. */
static cudnnStatus_t set(cudnnTensorDescriptor_t d, cudnnDataType_t type, int rank, const int* dims,
                         const int* stride) {
  long long elements = 1;
  for (int i = 0; i < rank; ++i) elements *= dims[i];
  if (elements > 2147483647) return CUDNN_STATUS_NOT_SUPPORTED;
  d->type = type;
  d->rank = rank;
  copy(d->dims, dims, rank);
  copy(d->stride, stride, rank);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t d, int requested,
                                         cudnnDataType_t* type, int* rank, int* dims, int* stride) {
  *type = d->type;
  *rank = d->rank;
  copy(dims, d->dims, requested < d->rank ? requested : d->rank);
  copy(stride, d->stride, requested < d->rank ? requested : d->rank);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int rank,
                                         const int* dims, const int* stride) {
  return set(d, type, rank, dims, stride);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  const int dims[] = {n, c, h, w}, stride[] = {c * h * w, h * w, w, 1};
  return d->format = format, set(d, type, 4, dims, stride);
}
cudnnStatus_t cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t d, size_t* bytes) {
  *bytes = 4;
  for (int i = 0; i < d->rank; ++i) *bytes *= (size_t)d->dims[i];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) {
  return make(d, sizeof(struct cudnnTensorStruct));
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) {
  return free(d), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int* dims) {
  struct cudnnTensorStruct* const d = (struct cudnnTensorStruct*)filter;
  d->type = type;
  d->format = format;
  d->rank = rank;
  copy(d->dims, dims, rank);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t filter, int requested,
                                         cudnnDataType_t* type, cudnnTensorFormat_t* format,
                                         int* rank, int* dims) {
  const struct cudnnTensorStruct* const d = (const struct cudnnTensorStruct*)filter;
  *type = d->type;
  *format = d->format;
  *rank = d->rank;
  copy(dims, d->dims, requested < d->rank ? requested : d->rank);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) {
  return make(d, sizeof **d);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) {
  return free(d), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int rank,
                                              const int* pad, const int* stride,
                                              const int* dilation, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
  d->rank = rank;
  copy(d->pad, pad, rank);
  copy(d->stride, stride, rank);
  copy(d->dilation, dilation, rank);
  d->mode = mode;
  d->type = type;
  d->groups = 1;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int requested,
                                              int* rank, int* pad, int* stride, int* dilation,
                                              cudnnConvolutionMode_t* mode, cudnnDataType_t* type) {
  const int count = requested < d->rank ? requested : d->rank;
  *rank = d->rank;
  copy(pad, d->pad, count);
  copy(stride, d->stride, count);
  copy(dilation, d->dilation, count);
  *mode = d->mode;
  *type = d->type;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
  return d->groups = groups, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int* groups) {
  return *groups = d->groups, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t* math) {
  return *math = d->math, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* d) {
  return make(d, sizeof **d);
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t d) {
  return free(d), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t d,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t nans,
                                           double coef) {
  d->mode = mode;
  d->nans = nans;
  d->coef = coef;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetActivationDescriptor(cudnnActivationDescriptor_t d,
                                           cudnnActivationMode_t* mode,
                                           cudnnNanPropagation_t* nans, double* coef) {
  *mode = d->mode;
  *nans = d->nans;
  *coef = d->coef;
  return CUDNN_STATUS_SUCCESS;
}

#define UNUSED(x) ((void)(x))

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void* a, cudnnTensorDescriptor_t xd,
                                      const void* x, cudnnFilterDescriptor_t wd, const void* w,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t g,
                                      void* s, size_t n, const void* b, cudnnTensorDescriptor_t yd,
                                      void* y) {
  UNUSED(h), UNUSED(a), UNUSED(xd), UNUSED(x), UNUSED(wd), UNUSED(w), UNUSED(c), UNUSED(g);
  UNUSED(s), UNUSED(n), UNUSED(b), UNUSED(yd);
  return mark(y);
}
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t h, const void* a, cudnnTensorDescriptor_t xd, const void* x,
    cudnnFilterDescriptor_t wd, const void* w, cudnnConvolutionDescriptor_t c,
    cudnnConvolutionFwdAlgo_t g, void* s, size_t n, const void* b, cudnnTensorDescriptor_t zd,
    const void* z, cudnnTensorDescriptor_t bd, const void* bias, cudnnActivationDescriptor_t ad,
    cudnnTensorDescriptor_t yd, void* y) {
  UNUSED(h), UNUSED(a), UNUSED(xd), UNUSED(x), UNUSED(wd), UNUSED(w), UNUSED(c), UNUSED(g);
  UNUSED(s), UNUSED(n), UNUSED(b), UNUSED(zd), UNUSED(z), UNUSED(bd), UNUSED(bias), UNUSED(ad);
  UNUSED(yd);
  return mark(y);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void* a,
                                           cudnnFilterDescriptor_t wd, const void* w,
                                           cudnnTensorDescriptor_t yd, const void* y,
                                           cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t g, void* s, size_t n,
                                           const void* b, cudnnTensorDescriptor_t xd, void* x) {
  UNUSED(h), UNUSED(a), UNUSED(xd), UNUSED(wd), UNUSED(w), UNUSED(c), UNUSED(g), UNUSED(s);
  UNUSED(n), UNUSED(b), UNUSED(yd), UNUSED(y);
  return mark(x);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void* a,
                                             cudnnTensorDescriptor_t xd, const void* x,
                                             cudnnTensorDescriptor_t yd, const void* y,
                                             cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t g, void* s, size_t n,
                                             const void* b, cudnnFilterDescriptor_t wd, void* w) {
  UNUSED(h), UNUSED(a), UNUSED(xd), UNUSED(x), UNUSED(wd), UNUSED(c), UNUSED(g), UNUSED(s);
  UNUSED(n), UNUSED(b), UNUSED(yd), UNUSED(y);
  return mark(w);
}
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t h, const void* a,
                                           cudnnTensorDescriptor_t yd, const void* y, const void* b,
                                           cudnnTensorDescriptor_t bd, void* bias) {
  UNUSED(h), UNUSED(a), UNUSED(yd), UNUSED(y), UNUSED(b), UNUSED(bd);
  return mark(bias);
}

/* What the drop-in never serves where there is a GPU. */
cudnnStatus_t cudnnAddTensor(cudnnHandle_t h, const void* alpha, cudnnTensorDescriptor_t ad,
                             const void* a, const void* beta, cudnnTensorDescriptor_t cd, void* c) {
  UNUSED(h), UNUSED(alpha), UNUSED(ad), UNUSED(a), UNUSED(beta), UNUSED(cd);
  return mark(c);
}
cudnnStatus_t cudnnScaleTensor(cudnnHandle_t h, cudnnTensorDescriptor_t yd, void* y,
                               const void* alpha) {
  UNUSED(h), UNUSED(yd), UNUSED(alpha);
  return mark(y);
}
cudnnStatus_t cudnnIm2Col(cudnnHandle_t h, cudnnTensorDescriptor_t xd, const void* x,
                          cudnnFilterDescriptor_t wd, cudnnConvolutionDescriptor_t c,
                          void* columns) {
  UNUSED(h), UNUSED(xd), UNUSED(x), UNUSED(wd), UNUSED(c);
  return mark(columns);
}
cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t c,
                                                    cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int rank, int* dims) {
  UNUSED(c), UNUSED(x), UNUSED(w);
  for (int i = 0; i < rank; ++i) dims[i] = -1;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t c,
                                                    cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int* n, int* k, int* h,
                                                    int* v) {
  UNUSED(c), UNUSED(x), UNUSED(w);
  *n = *k = *h = *v = -1;
  return CUDNN_STATUS_SUCCESS;
}

/* Every algorithm wants more memory than there is. */
enum { HUGE_SHIFT = 50 };
#define QUERY(name, params)                                                   \
  cudnnStatus_t cudnnGetConvolution##name##WorkspaceSize params {             \
    UNUSED(handle), UNUSED(a), UNUSED(b), UNUSED(c), UNUSED(d), UNUSED(algo); \
    *bytes = (size_t)1 << HUGE_SHIFT;                                         \
    return CUDNN_STATUS_SUCCESS;                                              \
  }
QUERY(Forward, (cudnnHandle_t handle, cudnnTensorDescriptor_t a, cudnnFilterDescriptor_t b,
                cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t d,
                cudnnConvolutionFwdAlgo_t algo, size_t* bytes))
QUERY(BackwardData, (cudnnHandle_t handle, cudnnFilterDescriptor_t a, cudnnTensorDescriptor_t b,
                     cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t d,
                     cudnnConvolutionBwdDataAlgo_t algo, size_t* bytes))
QUERY(BackwardFilter, (cudnnHandle_t handle, cudnnTensorDescriptor_t a, cudnnTensorDescriptor_t b,
                       cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t d,
                       cudnnConvolutionBwdFilterAlgo_t algo, size_t* bytes))

/* Two algorithms, of another math type than the descriptor's: the first wants too much, the second
 * nothing. */
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y, int requested, int* returned,
    cudnnConvolutionFwdAlgoPerf_t* results) {
  UNUSED(handle), UNUSED(x), UNUSED(w), UNUSED(y);
  for (int i = 0; i < 2 && i < requested; ++i) {
    memset(results + i, 0, sizeof *results);
    results[i].algo = i == 0 ? CUDNN_CONVOLUTION_FWD_ALGO_FFT : CUDNN_CONVOLUTION_FWD_ALGO_GEMM;
    results[i].memory = i == 0 ? (size_t)1 << HUGE_SHIFT : 0;
    results[i].mathType = c->math == CUDNN_FMA_MATH ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  }
  *returned = requested < 2 ? requested : 2;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, cudnnTensorDescriptor_t xd, const void* x, cudnnFilterDescriptor_t wd,
    const void* w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t yd, void* y,
    int requested, int* returned, cudnnConvolutionFwdAlgoPerf_t* results, void* s, size_t n) {
  UNUSED(x), UNUSED(w), UNUSED(s), UNUSED(n);
  mark(y);
  return cudnnGetConvolutionForwardAlgorithm_v7(handle, xd, wd, c, yd, requested, returned, results);
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  return d->math = math, CUDNN_STATUS_SUCCESS;
}
