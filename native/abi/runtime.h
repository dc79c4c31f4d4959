/* The types, values and functions of CUDA's runtime (libcudart.so.12 and .13) that the spill
 * library stands in front of, or uses. */
#pragma once

#include <stddef.h>

typedef int cudaError_t;
enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorNotSupported = 801,
};
enum { cudaMemoryTypeDevice = 2 };
enum { cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };
enum { cudaStreamNonBlocking = 1 };

typedef struct CUstream_st* cudaStream_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;
typedef struct cudaIpcMemHandle_st {
  char reserved[64];
} cudaIpcMemHandle_t;

/* CUDA 13 has more behind these. */
typedef struct cudaPointerAttributes {
  int type, device;
  void *devicePointer, *hostPointer;
} cudaPointerAttributes;

/* Those that the spill library stands in front of. */
#define OOC_RUNTIME_SERVED(DO)                                                            \
  DO(cudaMalloc, (void** pointer, size_t bytes))                                          \
  DO(cudaFree, (void* pointer))                                                           \
  DO(cudaMallocAsync, (void** pointer, size_t bytes, cudaStream_t stream))                \
  DO(cudaMallocFromPoolAsync,                                                             \
     (void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream))             \
  DO(cudaFreeAsync, (void* pointer, cudaStream_t stream))                                 \
  DO(cudaMemGetInfo, (size_t* free, size_t* total))                                       \
  DO(cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* pointer)) \
  DO(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* pointer))

/* Those that it only calls. */
#define OOC_RUNTIME_USED(DO)                                                \
  DO(cudaGetDevice, (int* device))                                          \
  DO(cudaSetDevice, (int device))                                           \
  DO(cudaDeviceSynchronize, (void))                                         \
  DO(cudaHostRegister, (void* pointer, size_t bytes, unsigned flags))       \
  DO(cudaHostUnregister, (void* pointer))                                   \
  DO(cudaHostGetDevicePointer, (void** device, void* host, unsigned flags)) \
  DO(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags))    \
  DO(cudaStreamDestroy, (cudaStream_t stream))                              \
  DO(cudaStreamSynchronize, (cudaStream_t stream))                          \
  DO(cudaStreamIsCapturing, (cudaStream_t stream, int* capturing))          \
  DO(cudaMemsetAsync, (void* pointer, int value, size_t bytes, cudaStream_t stream))

#define OOC_RUNTIME_TYPE(name, parameters) typedef cudaError_t(*OocFn_##name) parameters;
OOC_RUNTIME_SERVED(OOC_RUNTIME_TYPE)
OOC_RUNTIME_USED(OOC_RUNTIME_TYPE)
#undef OOC_RUNTIME_TYPE
