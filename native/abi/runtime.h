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
enum { cudaStreamCaptureStatusNone = 0 };
enum { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };

typedef struct CUstream_st* cudaStream_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
struct cudaGraphEdgeData_st;
typedef struct cudaIpcMemHandle_st {
  char reserved[64];
} cudaIpcMemHandle_t;

/* CUDA 13 has more behind these. */
typedef struct cudaPointerAttributes {
  int type, device;
  void *devicePointer, *hostPointer;
} cudaPointerAttributes;

typedef struct cudaExtent {
  size_t width, height, depth; /* bytes, rows, planes */
} cudaExtent;
typedef struct cudaPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize; /* bytes of a row with its padding, without, rows */
} cudaPitchedPtr;

/* Those that the spill library stands in front of. To those that end in _ptsz stream 0 is the
 * thread's own. */
#define OOC_RUNTIME_SERVED(DO)                                                            \
  DO(cudaMalloc, (void** pointer, size_t bytes))                                          \
  DO(cudaMallocPitch, (void** pointer, size_t* pitch, size_t width, size_t height))       \
  DO(cudaMalloc3D, (cudaPitchedPtr * pointer, cudaExtent extent))                         \
  DO(cudaFree, (void* pointer))                                                           \
  DO(cudaMallocAsync, (void** pointer, size_t bytes, cudaStream_t stream))                \
  DO(cudaMallocAsync_ptsz, (void** pointer, size_t bytes, cudaStream_t stream))           \
  DO(cudaMallocFromPoolAsync,                                                             \
     (void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream))             \
  DO(cudaMallocFromPoolAsync_ptsz,                                                        \
     (void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream))             \
  DO(cudaFreeAsync, (void* pointer, cudaStream_t stream))                                 \
  DO(cudaFreeAsync_ptsz, (void* pointer, cudaStream_t stream))                            \
  DO(cudaDeviceReset, (void))                                                             \
  DO(cudaMemGetInfo, (size_t* free, size_t* total))                                       \
  DO(cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* pointer)) \
  DO(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* pointer))                   \
  DO(cudaStreamBeginCapture, (cudaStream_t stream, int mode))                             \
  DO(cudaStreamBeginCapture_ptsz, (cudaStream_t stream, int mode))                        \
  DO(cudaStreamBeginCaptureToGraph,                                                       \
     (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* nodes,               \
      const struct cudaGraphEdgeData_st* edges, size_t count, int mode))                  \
  DO(cudaStreamBeginCaptureToGraph_ptsz,                                                  \
     (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* nodes,               \
      const struct cudaGraphEdgeData_st* edges, size_t count, int mode))                  \
  DO(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t * graph))                    \
  DO(cudaStreamEndCapture_ptsz, (cudaStream_t stream, cudaGraph_t * graph))

/* Those that it only calls. */
#define OOC_RUNTIME_USED(DO)                                                     \
  DO(cudaGetDevice, (int* device))                                               \
  DO(cudaDeviceGetPCIBusId, (char* text, int length, int device))                \
  DO(cudaSetDevice, (int device))                                                \
  DO(cudaGetLastError, (void))                                                   \
  DO(cudaDeviceSynchronize, (void))                                              \
  DO(cudaHostRegister, (void* pointer, size_t bytes, unsigned flags))            \
  DO(cudaHostUnregister, (void* pointer))                                        \
  DO(cudaHostGetDevicePointer, (void** device, void* host, unsigned flags))      \
  DO(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags))         \
  DO(cudaStreamDestroy, (cudaStream_t stream))                                   \
  DO(cudaStreamSynchronize, (cudaStream_t stream))                               \
  DO(cudaStreamIsCapturing, (cudaStream_t stream, int* capturing))               \
  DO(cudaStreamGetDevice, (cudaStream_t stream, int* device)) /* from 12.8 on */ \
  DO(cudaThreadExchangeStreamCaptureMode, (int* mode))                           \
  DO(cudaMemsetAsync, (void* pointer, int value, size_t bytes, cudaStream_t stream))

#define OOC_RUNTIME_TYPE(name, parameters) typedef cudaError_t(*OocFn_##name) parameters;
OOC_RUNTIME_SERVED(OOC_RUNTIME_TYPE)
OOC_RUNTIME_USED(OOC_RUNTIME_TYPE)
#undef OOC_RUNTIME_TYPE
