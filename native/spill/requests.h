/* Requests for device memory, and what comes back: from the device while it may be, else from host
 * memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spill/runtime.h"

/* One call of an allocating function; without `asynchronous` and `from_pool` it is cudaMalloc. */
typedef struct OocRequest {
  void** pointer;
  size_t bytes;
  OocFn_cudaMallocAsync asynchronous;
  OocFn_cudaMallocFromPoolAsync from_pool;
  cudaMemPool_t pool;
  cudaStream_t stream;
} OocRequest;

/* The function itself, nothing counted. */
cudaError_t ooc_ask_real(const OocRuntime* real, const OocRequest* request);

/* What the limit leaves no room for, and what the device itself refuses, answers
 * cudaErrorMemoryAllocation, so that a client that caches memory gives back what it does not use;
 * when the same thread repeats the request, host memory serves it. */
cudaError_t ooc_request(const OocRuntime* real, const OocRequest* request);

/* The end of a block; `free_real` frees what lies on the device, with `argument`. A block in host
 * memory waits for its device, because the program counts on cudaFree to do so. */
cudaError_t ooc_release(const OocRuntime* real, void* pointer,
                        cudaError_t (*free_real)(const OocRuntime*, void*, cudaStream_t),
                        cudaStream_t stream);

/* Whether a request was ever seen, and how many were refused. */
bool ooc_any_request(void);
int64_t ooc_refused(void);
