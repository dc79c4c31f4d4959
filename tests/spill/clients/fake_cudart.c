/* A CUDA runtime whose device memory is addresses that nobody may touch, and that counts. Each of
 * two cards has FAKE_CARD bytes, of which FAKE_CONTEXT are in use; with FAKE_NO_PINNING it takes no
 * host memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abi/runtime.h"

enum { kMost = 4096 };
typedef struct Range {
  char* at;
  size_t bytes;
  int device;
} Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Range held[kMost];
static size_t used, peak, pinned, waits, registrations;
static size_t used_on[2];
static _Thread_local int current; /* device */

static size_t card(void) {
  const char* const bytes = getenv("FAKE_CARD");
  return bytes != NULL ? strtoull(bytes, NULL, 10) : (size_t)1 << 40;
}

/* What the card holds that nobody asked for. */
static size_t context(void) {
  const char* const bytes = getenv("FAKE_CONTEXT");
  return bytes != NULL ? strtoull(bytes, NULL, 10) : 0;
}

static Range* find(const void* address) {
  for (size_t i = 0; i < kMost; ++i) {
    if (held[i].at == NULL) continue;
    if ((size_t)((const char*)address - held[i].at) < held[i].bytes) return &held[i];
  }
  return NULL;
}

static int hold(void** pointer, size_t bytes) {
  if (used_on[current] + bytes > card()) return cudaErrorMemoryAllocation;
  for (size_t i = 0; i < kMost; ++i) {
    if (held[i].at != NULL) continue;
    void* const at =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    held[i] = (Range){at, bytes, current};
    *pointer = at;
    used += bytes;
    used_on[current] += bytes;
    if (used > peak) peak = used;
    return cudaSuccess;
  }
  abort();
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (bytes == 0) return *pointer = NULL, cudaSuccess;
  pthread_mutex_lock(&lock);
  const int status = hold(pointer, bytes);
  pthread_mutex_unlock(&lock);
  return status;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == NULL) return cudaSuccess;
  pthread_mutex_lock(&lock);
  Range* const range = find(pointer);
  const int known = range != NULL && range->at == (char*)pointer;
  if (known) {
    munmap(range->at, range->bytes);
    used -= range->bytes;
    used_on[range->device] -= range->bytes;
    *range = (Range){NULL, 0, 0};
  }
  pthread_mutex_unlock(&lock);
  return known ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return (void)stream, cudaMalloc(pointer, bytes);
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return (void)pool, (void)stream, cudaMalloc(pointer, bytes);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return (void)stream, cudaFree(pointer);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = card();
  *free = card() - used_on[current] - context();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const int on_device = find(pointer) != NULL;
  *attributes = (cudaPointerAttributes){on_device ? cudaMemoryTypeDevice : 1, 0, (void*)pointer,
                                        on_device ? NULL : (void*)pointer};
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  memset(handle, 0, sizeof *handle);
  return find(pointer) != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return current = device, cudaSuccess; }
/* A wait for device 1 counts as 100. */
cudaError_t cudaDeviceSynchronize(void) {
  __atomic_add_fetch(&waits, current == 0 ? 1 : 100, __ATOMIC_SEQ_CST);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  (void)pointer;
  if (getenv("FAKE_NO_PINNING") != NULL || flags != 3) return cudaErrorInvalidValue;
  __atomic_add_fetch(&pinned, bytes, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&registrations, 1, __ATOMIC_SEQ_CST);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) { return (void)pointer, abort(), cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return (void)flags, *device = host, cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return (void)flags, *stream = NULL, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return (void)stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return (void)stream, cudaSuccess; }
/* Stream 1 is always being captured. */
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int* capturing) {
  return *capturing = stream == (cudaStream_t)1, cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return (void)stream, memset(pointer, value, bytes), cudaSuccess;
}

/* used, peak, pinned, registrations, waits */
void fake_figures(long long figures[5]) {
  const size_t all[5] = {used, peak, pinned, registrations, waits};
  for (int i = 0; i < 5; ++i) figures[i] = (long long)all[i];
}
