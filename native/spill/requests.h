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
 * when the same thread repeats the request, host memory serves it. It does so at once where a
 * capture is under way and the thread may allocate nevertheless, because nothing can be given back
 * then, and the client asks only once. The runtime's last error is as after a call of its own. */
cudaError_t ooc_request(const OocRuntime* real, const OocRequest* request);

/* Whether a request was ever seen, and how many were refused. */
bool ooc_any_request(void);
int64_t ooc_refused(void);
