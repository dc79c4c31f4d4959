/* The preloaded liboocdnn_spill.so: CUDA's runtime functions for memory, under the version nodes of
 * both runtimes, so that programs of either find them here first. A program that asks for more
 * device memory than its limit gets host memory that the device reads and writes where it lies.
 *
 * Where settings say nothing, every call goes to the real function. */
#include "abi/spill.h"

#include "spill/blocks.h"
#include "spill/ledger.h"
#include "spill/requests.h"
#include "spill/settings.h"
#include "spill/slabs.h"

static cudaError_t serve_cudaMalloc(const OocRuntime* real, void** pointer, size_t bytes) {
  if (pointer == NULL || bytes == 0) return real->cudaMalloc(pointer, bytes);
  return ooc_request(real, &(OocRequest){.pointer = pointer, .bytes = bytes});
}

/* Memory of a graph that is being captured is the graph's, and not counted. */
static bool is_capturing(const OocRuntime* real, cudaStream_t stream) {
  int capturing = 0;
  return real->cudaStreamIsCapturing(stream, &capturing) != cudaSuccess || capturing != 0;
}

static cudaError_t in_order(const OocRuntime* real, const OocRequest* request) {
  if (request->pointer == NULL || request->bytes == 0 || is_capturing(real, request->stream)) {
    return ooc_ask_real(real, request);
  }
  return ooc_request(real, request);
}

static cudaError_t serve_cudaMallocAsync(const OocRuntime* real, void** pointer, size_t bytes,
                                         cudaStream_t stream) {
  return in_order(real, &(OocRequest){.pointer = pointer,
                                      .bytes = bytes,
                                      .asynchronous = real->cudaMallocAsync,
                                      .stream = stream});
}

static cudaError_t serve_cudaMallocFromPoolAsync(const OocRuntime* real, void** pointer,
                                                 size_t bytes, cudaMemPool_t pool,
                                                 cudaStream_t stream) {
  return in_order(real, &(OocRequest){.pointer = pointer,
                                      .bytes = bytes,
                                      .from_pool = real->cudaMallocFromPoolAsync,
                                      .pool = pool,
                                      .stream = stream});
}

static cudaError_t free_now(const OocRuntime* real, void* pointer, cudaStream_t stream) {
  (void)stream;
  return real->cudaFree(pointer);
}

static cudaError_t free_in_order(const OocRuntime* real, void* pointer, cudaStream_t stream) {
  return real->cudaFreeAsync(pointer, stream);
}

static cudaError_t serve_cudaFree(const OocRuntime* real, void* pointer) {
  return ooc_release(real, pointer, free_now, NULL);
}

static cudaError_t serve_cudaFreeAsync(const OocRuntime* real, void* pointer, cudaStream_t stream) {
  return ooc_release(real, pointer, free_in_order, stream);
}

/* A device of the program's share. */
static cudaError_t serve_cudaMemGetInfo(const OocRuntime* real, size_t* free, size_t* total) {
  const cudaError_t status = real->cudaMemGetInfo(free, total);
  int device = 0;
  if (status != cudaSuccess || real->cudaGetDevice(&device) != cudaSuccess) return status;
  size_t room = 0;
  const size_t share = ooc_ledger_share(device, &room);
  if (*free > room) *free = room;
  if (*total > share) *total = share;
  return status;
}

/* A block is device memory to the program, wherever it lies. */
static cudaError_t serve_cudaPointerGetAttributes(const OocRuntime* real,
                                                  cudaPointerAttributes* attributes,
                                                  const void* pointer) {
  const cudaError_t status = real->cudaPointerGetAttributes(attributes, pointer);
  OocBlock block;
  if (status == cudaSuccess && ooc_blocks_find(pointer, &block) && block.on_host) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = block.device;
    attributes->hostPointer = NULL;
  }
  return status;
}

static cudaError_t serve_cudaIpcGetMemHandle(const OocRuntime* real, cudaIpcMemHandle_t* handle,
                                             void* pointer) {
  OocBlock block;
  if (ooc_blocks_find(pointer, &block) && block.on_host) return cudaErrorNotSupported;
  return real->cudaIpcGetMemHandle(handle, pointer);
}

__attribute__((visibility("default"))) void oocdnn_spill_figures(OocSpillFigures* figures) {
  *figures = (OocSpillFigures){0};
  if (!ooc_settings()->on) return;
  figures->limit = (int64_t)ooc_settings()->limit;
  figures->budget = (int64_t)ooc_settings()->budget;
  ooc_ledger_figures(&figures->device_bytes, &figures->device_peak, &figures->others);
  ooc_slabs_figures(&figures->host_bytes, &figures->host_peak, &figures->pinned_bytes);
  figures->refused = ooc_refused();
}

/* Each function under both names. A runtime that is not loaded has no functions. */
#define ENTRY(version, node, name, parameters, ...)                                \
  cudaError_t name##_##version parameters;                                         \
  __attribute__((visibility("default"))) cudaError_t name##_##version parameters { \
    const OocRuntime* const real = ooc_runtime(version);                           \
    if (real->name == NULL) return cudaErrorInitializationError;                   \
    if (!ooc_settings()->on) return real->name(__VA_ARGS__);                       \
    return serve_##name(real, __VA_ARGS__);                                        \
  }                                                                                \
  __asm__(".symver " #name "_" #version "," #name node "libcudart.so." #version);
#define ENTRIES(name, parameters, ...)          \
  ENTRY(12, "@", name, parameters, __VA_ARGS__) \
  ENTRY(13, "@@", name, parameters, __VA_ARGS__)

ENTRIES(cudaMalloc, (void** pointer, size_t bytes), pointer, bytes)
ENTRIES(cudaFree, (void* pointer), pointer)
ENTRIES(cudaMallocAsync, (void** pointer, size_t bytes, cudaStream_t stream), pointer, bytes,
        stream)
ENTRIES(cudaMallocFromPoolAsync,
        (void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream), pointer, bytes,
        pool, stream)
ENTRIES(cudaFreeAsync, (void* pointer, cudaStream_t stream), pointer, stream)
ENTRIES(cudaMemGetInfo, (size_t* free, size_t* total), free, total)
ENTRIES(cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* pointer),
        attributes, pointer)
ENTRIES(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* pointer), handle, pointer)
