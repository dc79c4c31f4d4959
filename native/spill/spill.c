/* The preloaded liboocdnn_spill.so: CUDA's runtime functions for memory, under the version nodes of
 * both runtimes, so that programs of either find them here first. A program that asks for more
 * device memory than its limit gets host memory that the device reads and writes where it lies.
 *
 * Where settings say nothing, every call goes to the real function. */
#include "abi/spill.h"

#include "spill/blocks.h"
#include "spill/captures.h"
#include "spill/ledger.h"
#include "spill/lines.h"
#include "spill/look.h"
#include "spill/release.h"
#include "spill/requests.h"
#include "spill/settings.h"
#include "spill/sizes.h"
#include "spill/slabs.h"

static cudaError_t serve_cudaMalloc(const OocRuntime* real, void** pointer, size_t bytes) {
  if (pointer == NULL || bytes == 0) return real->cudaMalloc(pointer, bytes);
  return ooc_request(real, &(OocRequest){.pointer = pointer, .bytes = bytes});
}

/* Rows begin where cudaMalloc's blocks may: linear memory, in which textures may lie as well.
 * False for an empty block, and for one whose size overflows: the runtime answers those. */
static bool pitched(size_t width, size_t rows, size_t* pitch, size_t* bytes) {
  *pitch = ooc_rounded(width, 512);
  *bytes = ooc_times(*pitch, rows);
  return *bytes > 0 && *bytes < SIZE_MAX;
}

static cudaError_t serve_cudaMallocPitch(const OocRuntime* real, void** pointer, size_t* pitch,
                                         size_t width, size_t height) {
  size_t step = 0;
  size_t bytes = 0;
  if (pointer == NULL || pitch == NULL || !pitched(width, height, &step, &bytes)) {
    return real->cudaMallocPitch(pointer, pitch, width, height);
  }
  const cudaError_t status = serve_cudaMalloc(real, pointer, bytes);
  if (status == cudaSuccess) *pitch = step;
  return status;
}

static cudaError_t serve_cudaMalloc3D(const OocRuntime* real, cudaPitchedPtr* pointer,
                                      cudaExtent extent) {
  const size_t rows = ooc_times(extent.height, extent.depth);
  size_t pitch = 0;
  size_t bytes = 0;
  if (pointer == NULL || !pitched(extent.width, rows, &pitch, &bytes)) {
    return real->cudaMalloc3D(pointer, extent);
  }
  void* at = NULL;
  const cudaError_t status = serve_cudaMalloc(real, &at, bytes);
  if (status == cudaSuccess) *pointer = (cudaPitchedPtr){at, pitch, extent.width, extent.height};
  return status;
}

/* Memory of a graph that is being captured is the graph's, and not counted. */
static bool is_capturing(const OocRuntime* real, cudaStream_t stream) {
  int capturing = cudaStreamCaptureStatusNone;
  if (real->cudaStreamIsCapturing(stream, &capturing) != cudaSuccess) ooc_forget_error(real);
  return capturing != cudaStreamCaptureStatusNone;
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

/* The name of the stream that functions with _ptsz mean by 0. */
static cudaStream_t of_thread(cudaStream_t stream) {
  return stream == NULL ? (cudaStream_t)2 : stream;
}

static cudaError_t serve_cudaMallocAsync_ptsz(const OocRuntime* real, void** pointer, size_t bytes,
                                              cudaStream_t stream) {
  return serve_cudaMallocAsync(real, pointer, bytes, of_thread(stream));
}

static cudaError_t serve_cudaMallocFromPoolAsync_ptsz(const OocRuntime* real, void** pointer,
                                                      size_t bytes, cudaMemPool_t pool,
                                                      cudaStream_t stream) {
  return serve_cudaMallocFromPoolAsync(real, pointer, bytes, pool, of_thread(stream));
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

static cudaError_t serve_cudaFreeAsync_ptsz(const OocRuntime* real, void* pointer,
                                            cudaStream_t stream) {
  return serve_cudaFreeAsync(real, pointer, of_thread(stream));
}

static cudaError_t serve_cudaDeviceReset(const OocRuntime* real) { return ooc_reset(real); }

/* A device of the program's share; what it answers is a look at the card as well. */
static cudaError_t serve_cudaMemGetInfo(const OocRuntime* real, size_t* free, size_t* total) {
  int device = 0;
  if (free == NULL || total == NULL) return real->cudaMemGetInfo(free, total);
  const cudaError_t unknown = real->cudaGetDevice(&device);
  if (unknown != cudaSuccess) return unknown;
  const cudaError_t status = ooc_look(real, device, free, total);
  if (status != cudaSuccess) return status;
  size_t room = 0;
  const size_t share = ooc_ledger_share(device, &room);
  *free = ooc_least(*free, room);
  *total = ooc_least(*total, share);
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
  if (ooc_blocks_find(pointer, &block) && block.on_host) {
    ooc_say_not_shared(&block);
    return cudaErrorNotSupported;
  }
  return real->cudaIpcGetMemHandle(handle, pointer);
}

static cudaError_t serve_cudaStreamBeginCapture(const OocRuntime* real, cudaStream_t stream,
                                                int mode) {
  ooc_capture_begins();
  const cudaError_t status = real->cudaStreamBeginCapture(stream, mode);
  ooc_capture_began(status);
  return status;
}

static cudaError_t serve_cudaStreamBeginCapture_ptsz(const OocRuntime* real, cudaStream_t stream,
                                                     int mode) {
  return serve_cudaStreamBeginCapture(real, of_thread(stream), mode);
}

static cudaError_t serve_cudaStreamBeginCaptureToGraph(const OocRuntime* real, cudaStream_t stream,
                                                       cudaGraph_t graph,
                                                       const cudaGraphNode_t* nodes,
                                                       const struct cudaGraphEdgeData_st* edges,
                                                       size_t count, int mode) {
  ooc_capture_begins();
  const cudaError_t status =
      real->cudaStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode);
  ooc_capture_began(status);
  return status;
}

static cudaError_t serve_cudaStreamBeginCaptureToGraph_ptsz(
    const OocRuntime* real, cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* nodes,
    const struct cudaGraphEdgeData_st* edges, size_t count, int mode) {
  return serve_cudaStreamBeginCaptureToGraph(real, of_thread(stream), graph, nodes, edges, count,
                                             mode);
}

static cudaError_t serve_cudaStreamEndCapture(const OocRuntime* real, cudaStream_t stream,
                                              cudaGraph_t* graph) {
  return ooc_capture_end(real, stream, graph);
}

static cudaError_t serve_cudaStreamEndCapture_ptsz(const OocRuntime* real, cudaStream_t stream,
                                                   cudaGraph_t* graph) {
  return ooc_capture_end(real, of_thread(stream), graph);
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
    return serve_##name(real __VA_OPT__(, ) __VA_ARGS__);                          \
  }                                                                                \
  __asm__(".symver " #name "_" #version "," #name node "libcudart.so." #version);
#define ENTRIES(name, parameters, ...)                        \
  ENTRY(12, "@", name, parameters __VA_OPT__(, ) __VA_ARGS__) \
  ENTRY(13, "@@", name, parameters __VA_OPT__(, ) __VA_ARGS__)

#define BEGIN_TO_GRAPH                                                   \
  (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* nodes, \
   const struct cudaGraphEdgeData_st* edges, size_t count, int mode)

ENTRIES(cudaMalloc, (void** pointer, size_t bytes), pointer, bytes)
ENTRIES(cudaMallocPitch, (void** pointer, size_t* pitch, size_t width, size_t height), pointer,
        pitch, width, height)
ENTRIES(cudaMalloc3D, (cudaPitchedPtr * pointer, cudaExtent extent), pointer, extent)
ENTRIES(cudaFree, (void* pointer), pointer)
ENTRIES(cudaMallocAsync, (void** pointer, size_t bytes, cudaStream_t stream), pointer, bytes,
        stream)
ENTRIES(cudaMallocAsync_ptsz, (void** pointer, size_t bytes, cudaStream_t stream), pointer, bytes,
        stream)
ENTRIES(cudaMallocFromPoolAsync,
        (void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream), pointer, bytes,
        pool, stream)
ENTRIES(cudaMallocFromPoolAsync_ptsz,
        (void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream), pointer, bytes,
        pool, stream)
ENTRIES(cudaFreeAsync, (void* pointer, cudaStream_t stream), pointer, stream)
ENTRIES(cudaFreeAsync_ptsz, (void* pointer, cudaStream_t stream), pointer, stream)
ENTRIES(cudaDeviceReset, (void))
ENTRIES(cudaMemGetInfo, (size_t* free, size_t* total), free, total)
ENTRIES(cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* pointer),
        attributes, pointer)
ENTRIES(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void* pointer), handle, pointer)
ENTRIES(cudaStreamBeginCapture, (cudaStream_t stream, int mode), stream, mode)
ENTRIES(cudaStreamBeginCapture_ptsz, (cudaStream_t stream, int mode), stream, mode)
ENTRIES(cudaStreamBeginCaptureToGraph, BEGIN_TO_GRAPH, stream, graph, nodes, edges, count, mode)
ENTRIES(cudaStreamBeginCaptureToGraph_ptsz, BEGIN_TO_GRAPH, stream, graph, nodes, edges, count,
        mode)
ENTRIES(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph), stream, graph)
ENTRIES(cudaStreamEndCapture_ptsz, (cudaStream_t stream, cudaGraph_t* graph), stream, graph)
