/* The part of the CUDA driver's interface that we use, in declarations of our own, so that no
 * toolkit is needed to build. Entry points of CUDA 12.0 (driver 525), which later drivers keep.
 *
 * OOC_CUDA_DRIVER_FUNCTIONS is the one list: it makes the table of functions and what fills it. */
#pragma once

#include <stddef.h>

/* NOLINTBEGIN(readability-identifier-naming): the names are the driver's. */

#ifdef __cplusplus
extern "C" {
#endif

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUarray_st* CUarray;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908
};

typedef enum {
  CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
} CUdevice_attribute;

typedef enum {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
} CUfunction_attribute;

typedef enum {
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12
} CUpointer_attribute;

typedef enum {
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
  CU_MEMORYTYPE_ARRAY = 3,
  CU_MEMORYTYPE_UNIFIED = 4
} CUmemorytype;

typedef enum {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2
} CUstreamCaptureMode;

typedef enum {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;

enum {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
  CU_MEMHOSTREGISTER_DEVICEMAP = 2
};

typedef struct {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void* reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

/* F(name, exported symbol, parameters) */
#define OOC_CUDA_DRIVER_FUNCTIONS(F)                                                               \
  F(cuInit, "cuInit", (unsigned int flags))                                                        \
  F(cuDriverGetVersion, "cuDriverGetVersion", (int* version))                                      \
  F(cuGetErrorName, "cuGetErrorName", (CUresult error, const char** text))                         \
  F(cuGetErrorString, "cuGetErrorString", (CUresult error, const char** text))                     \
  F(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                  \
  F(cuDeviceGetCount, "cuDeviceGetCount", (int* count))                                            \
  F(cuDeviceGetName, "cuDeviceGetName", (char* name, int length, CUdevice device))                 \
  F(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t* bytes, CUdevice device))                     \
  F(cuDeviceGetAttribute, "cuDeviceGetAttribute",                                                  \
    (int* value, CUdevice_attribute attribute, CUdevice device))                                   \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))  \
  F(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                  \
  F(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int* can, CUdevice device, CUdevice peer))    \
  F(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", (CUcontext peer, unsigned int flags))          \
  F(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                                  \
  F(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * context))                                  \
  F(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int* least, int* greatest))       \
  F(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",                        \
    (CUstreamCaptureMode * mode))                                                                  \
  F(cuModuleLoadData, "cuModuleLoadData", (CUmodule * module, const void* image))                  \
  F(cuModuleUnload, "cuModuleUnload", (CUmodule module))                                           \
  F(cuModuleGetFunction, "cuModuleGetFunction",                                                    \
    (CUfunction * function, CUmodule module, const char* name))                                    \
  F(cuFuncGetAttribute, "cuFuncGetAttribute",                                                      \
    (int* value, CUfunction_attribute attribute, CUfunction function))                             \
  F(cuFuncSetAttribute, "cuFuncSetAttribute",                                                      \
    (CUfunction function, CUfunction_attribute attribute, int value))                              \
  F(cuLaunchKernel, "cuLaunchKernel",                                                              \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,           \
     unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,  \
     CUstream stream, void** parameters, void** extra))                                            \
  F(cuMemGetInfo, "cuMemGetInfo_v2", (size_t* free_bytes, size_t* total_bytes))                    \
  F(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * pointer, size_t bytes))                            \
  F(cuMemFree, "cuMemFree_v2", (CUdeviceptr pointer))                                              \
  F(cuMemHostRegister, "cuMemHostRegister_v2", (void* memory, size_t bytes, unsigned int flags))   \
  F(cuMemHostUnregister, "cuMemHostUnregister", (void* memory))                                    \
  F(cuMemcpyAsync, "cuMemcpyAsync",                                                                \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                             \
  F(cuMemcpy3DAsync, "cuMemcpy3DAsync_v2", (const CUDA_MEMCPY3D* copy, CUstream stream))           \
  F(cuMemsetD8Async, "cuMemsetD8Async",                                                            \
    (CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream))                           \
  F(cuPointerGetAttributes, "cuPointerGetAttributes",                                              \
    (unsigned int count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer))       \
  F(cuStreamCreateWithPriority, "cuStreamCreateWithPriority",                                      \
    (CUstream * stream, unsigned int flags, int priority))                                         \
  F(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                      \
  F(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                 \
  F(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream stream, CUstreamCaptureStatus * status)) \
  F(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned int flags))  \
  F(cuEventCreate, "cuEventCreate", (CUevent * event, unsigned int flags))                         \
  F(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                          \
  F(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                              \
  F(cuEventQuery, "cuEventQuery", (CUevent event))                                                 \
  F(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                     \
  F(cuEventElapsedTime, "cuEventElapsedTime", (float* milliseconds, CUevent begin, CUevent end))

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */
