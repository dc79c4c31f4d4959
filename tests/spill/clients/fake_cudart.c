/* A CUDA runtime whose device memory is addresses that nobody may touch, and that counts. Each of
 * two cards has FAKE_CARD bytes, of which FAKE_CONTEXT are in use; with FAKE_NO_PINNING it takes no
 * host memory, with FAKE_OTHER_ADDRESS devices know it by another address. It keeps a last error in
 * each thread. While a stream is captured, waiting for a device ends the capture, and so does
 * allocating in a thread whose mode is not relaxed. Stream 101 is of card 1. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abi/runtime.h"
#include "abi/spill.h"

enum { kMost = 4096, kStreams = 128, kUnsupported = 900, kInvalidated = 901, kBroken = 719 };
typedef struct Range {
  char* at;
  size_t bytes;
  int device;
} Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Range held[kMost], pinned[kMost];
static size_t used, peak, pinned_bytes, waits, registrations, looks;
static size_t used_on[2];
static long long host_at_wait, device_at_free; /* what the ledger says then */
static int captured[kStreams];                 /* 1, or 2 when the capture is ended */
static int under_way, failing_waits;
static void* free_at_look;
static _Thread_local int current; /* device */
static _Thread_local int mode, last_error;

static int answer(int status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

cudaError_t cudaGetLastError(void) {
  const int status = last_error;
  last_error = cudaSuccess;
  return status;
}

static OocSpillFigures ledger(void) {
  OocSpillFigures figures = {0};
  void (*ask)(OocSpillFigures*) = NULL;
  void* const found = dlsym(RTLD_DEFAULT, "oocdnn_spill_figures");
  memcpy(&ask, &found, sizeof found);
  if (ask != NULL) ask(&figures);
  return figures;
}

static size_t number(const char* variable, size_t otherwise) {
  const char* const text = getenv(variable);
  return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}
static size_t card(void) { return number("FAKE_CARD", (size_t)1 << 40); }
/* What the card holds that nobody asked for. */
static size_t context(void) { return number("FAKE_CONTEXT", 0); }

static Range* find(Range* ranges, const void* address) {
  for (size_t i = 0; i < kMost; ++i) {
    if (ranges[i].at == NULL) continue;
    if ((size_t)((const char*)address - ranges[i].at) < ranges[i].bytes) return &ranges[i];
  }
  return NULL;
}

static void add(Range* ranges, Range range) {
  for (size_t i = 0; i < kMost; ++i) {
    if (ranges[i].at != NULL) continue;
    ranges[i] = range;
    return;
  }
  abort();
}

static void end_captures(void) {
  for (int i = 0; i < kStreams; ++i) captured[i] = captured[i] != 0 ? 2 : 0;
}

/* Whether a capture forbids what is asked. */
static int is_forbidden(int relaxed_helps) {
  if (under_way == 0 || (relaxed_helps && mode == cudaStreamCaptureModeRelaxed)) return 0;
  end_captures();
  return 1;
}

static int hold(void** pointer, size_t bytes, int device) {
  if (bytes > card() || used_on[device] + bytes > card()) return cudaErrorMemoryAllocation;
  void* const at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) abort();
  add(held, (Range){at, bytes, device});
  *pointer = at;
  used += bytes;
  used_on[device] += bytes;
  if (used > peak) peak = used;
  return cudaSuccess;
}

static cudaError_t allocate(void** pointer, size_t bytes, int device, int in_order) {
  if (pointer == NULL) return answer(cudaErrorInvalidValue);
  if (bytes == 0) return *pointer = NULL, cudaSuccess;
  pthread_mutex_lock(&lock);
  const int forbidden = !in_order && is_forbidden(1);
  const int status = forbidden ? kUnsupported : hold(pointer, bytes, device);
  pthread_mutex_unlock(&lock);
  return answer(status);
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, current, 0);
}

static size_t product(size_t a, size_t b) {
  size_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? SIZE_MAX : result;
}
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  if (pitch == NULL) return answer(cudaErrorInvalidValue);
  return *pitch = width, cudaMalloc(pointer, product(width, height));
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  if (pointer == NULL) return answer(cudaErrorInvalidValue);
  *pointer = (cudaPitchedPtr){NULL, extent.width, extent.width, extent.height};
  return cudaMalloc(&pointer->ptr, product(product(extent.width, extent.height), extent.depth));
}

static void drop(Range* range) {
  munmap(range->at, range->bytes);
  used -= range->bytes;
  used_on[range->device] -= range->bytes;
  *range = (Range){NULL, 0, 0};
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == NULL) return cudaSuccess;
  const long long counted = ledger().device_bytes;
  pthread_mutex_lock(&lock);
  device_at_free = counted;
  Range* const range = find(held, pointer);
  const int known = range != NULL && range->at == (char*)pointer;
  if (known) drop(range);
  pthread_mutex_unlock(&lock);
  return answer(known ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDeviceReset(void) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < kMost; ++i) {
    if (held[i].at != NULL && held[i].device == current) drop(&held[i]);
  }
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return *device = (size_t)stream == 101 ? 1 : current, cudaSuccess;
}
static int device_of(cudaStream_t stream) {
  int device = 0;
  cudaStreamGetDevice(stream, &device);
  return device;
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return allocate(pointer, bytes, device_of(stream), 1);
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return (void)pool, allocate(pointer, bytes, device_of(stream), 1);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return (void)stream, cudaFree(pointer);
}
cudaError_t cudaMallocAsync_ptsz(void** pointer, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(pointer, bytes, stream);
}
cudaError_t cudaMallocFromPoolAsync_ptsz(void** pointer, size_t bytes, cudaMemPool_t pool,
                                         cudaStream_t stream) {
  return cudaMallocFromPoolAsync(pointer, bytes, pool, stream);
}
cudaError_t cudaFreeAsync_ptsz(void* pointer, cudaStream_t stream) {
  return cudaFreeAsync(pointer, stream);
}

/* The next look at the card finds a block of the program's, which is freed before it is answered. */
void fake_free_at_look(void* pointer) { free_at_look = pointer; }

static void free_through_all(void* pointer) {
  cudaError_t (*release)(void*) = NULL;
  void* const found = dlsym(dlopen(NULL, RTLD_LAZY), "cudaFree"); /* the program's scope */
  memcpy(&release, &found, sizeof found);
  release(pointer);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (free == NULL || total == NULL) return answer(cudaErrorInvalidValue);
  *total = card();
  *free = card() - used_on[current] - context();
  void* const gone = free_at_look;
  free_at_look = NULL;
  if (gone != NULL) free_through_all(gone);
  __atomic_add_fetch(&looks, 1, __ATOMIC_SEQ_CST);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (attributes == NULL) return answer(cudaErrorInvalidValue);
  const int on_device = find(held, pointer) != NULL;
  *attributes = (cudaPointerAttributes){on_device ? cudaMemoryTypeDevice : 1, 0, (void*)pointer,
                                        on_device ? NULL : (void*)pointer};
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (handle == NULL) return answer(cudaErrorInvalidValue);
  memset(handle, 0, sizeof *handle);
  return answer(find(held, pointer) != NULL ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  snprintf(text, (size_t)length, "0000:%02x:00.0", 10 + device);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return current = device, cudaSuccess; }

/* The next `count` waits fail. */
void fake_fail_waits(int count) { failing_waits = count; }

/* A wait for device 1 counts as 100. */
cudaError_t cudaDeviceSynchronize(void) {
  const long long counted = ledger().host_bytes;
  pthread_mutex_lock(&lock);
  waits += current == 0 ? 1 : 100;
  host_at_wait = counted;
  int status = is_forbidden(0) ? kUnsupported : cudaSuccess;
  if (status == cudaSuccess && failing_waits > 0) {
    --failing_waits;
    status = kBroken;
  }
  pthread_mutex_unlock(&lock);
  return answer(status);
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  if (getenv("FAKE_NO_PINNING") != NULL || flags != 3) return answer(cudaErrorInvalidValue);
  pthread_mutex_lock(&lock);
  const int forbidden = is_forbidden(1);
  if (!forbidden) {
    add(pinned, (Range){pointer, bytes, current});
    pinned_bytes += bytes;
    ++registrations;
  }
  pthread_mutex_unlock(&lock);
  return answer(forbidden ? kUnsupported : cudaSuccess);
}
cudaError_t cudaHostUnregister(void* pointer) {
  pthread_mutex_lock(&lock);
  Range* const range = find(pinned, pointer);
  if (range == NULL || range->at != (char*)pointer) abort();
  pinned_bytes -= range->bytes;
  *range = (Range){NULL, 0, 0};
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  (void)flags;
  return *device = (char*)host + (getenv("FAKE_OTHER_ADDRESS") != NULL), cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (getenv("FAKE_NO_STREAM") != NULL) return answer(cudaErrorInvalidValue);
  return (void)flags, *stream = NULL, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return (void)stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return (void)stream, cudaSuccess; }
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  if (getenv("FAKE_NO_MEMSET") != NULL) return answer(cudaErrorInvalidValue);
  return (void)stream, memset(pointer, value, bytes), cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* capturing) {
  return *capturing = captured[(size_t)stream], cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(int* other) {
  const int before = mode;
  mode = *other;
  *other = before;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int how) {
  (void)how;
  pthread_mutex_lock(&lock);
  const int before = captured[(size_t)stream];
  captured[(size_t)stream] = 1;
  under_way += before == 0;
  pthread_mutex_unlock(&lock);
  return answer(before == 0 ? cudaSuccess : kUnsupported);
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* nodes,
                                          const struct cudaGraphEdgeData_st* edges, size_t count,
                                          int how) {
  return (void)graph, (void)nodes, (void)edges, (void)count, cudaStreamBeginCapture(stream, how);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  static const int answers[] = {cudaErrorInvalidValue, cudaSuccess, kInvalidated};
  pthread_mutex_lock(&lock);
  const int before = captured[(size_t)stream];
  captured[(size_t)stream] = 0;
  under_way -= before != 0;
  pthread_mutex_unlock(&lock);
  return *graph = NULL, answer(answers[before]);
}
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, int how) {
  return cudaStreamBeginCapture(stream, how);
}
cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                               const cudaGraphNode_t* nodes,
                                               const struct cudaGraphEdgeData_st* edges,
                                               size_t count, int how) {
  return cudaStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, how);
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return cudaStreamEndCapture(stream, graph);
}

/* used, peak, pinned, registrations, waits, looks; what the ledger held in host memory at the last
 * wait, and on the device at the last free */
void fake_figures(long long figures[8]) {
  const long long all[8] = {(long long)used,         (long long)peak,
                            (long long)pinned_bytes, (long long)registrations,
                            (long long)waits,        (long long)looks,
                            host_at_wait,            device_at_free};
  memcpy(figures, all, sizeof all);
}
