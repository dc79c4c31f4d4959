#include "spill/requests.h"

#include <stdatomic.h>

#include "spill/blocks.h"
#include "spill/ledger.h"
#include "spill/lines.h"
#include "spill/settings.h"
#include "spill/slabs.h"

static atomic_bool any_request;
static atomic_bool any_spilled;
static atomic_int_fast64_t refused;

/* What was refused last in this thread. */
typedef struct Refused {
  int device;
  size_t bytes;
} Refused;
static _Thread_local __attribute__((tls_model("initial-exec"))) Refused last_refused;

bool ooc_any_request(void) { return any_request; }
int64_t ooc_refused(void) { return refused; }

cudaError_t ooc_ask_real(const OocRuntime* real, const OocRequest* request) {
  if (request->from_pool != NULL) {
    return request->from_pool(request->pointer, request->bytes, request->pool, request->stream);
  }
  if (request->asynchronous != NULL) {
    return request->asynchronous(request->pointer, request->bytes, request->stream);
  }
  return real->cudaMalloc(request->pointer, request->bytes);
}

static cudaError_t free_real(const OocRuntime* real, const OocRequest* request) {
  void* const pointer = *request->pointer;
  const bool in_order = request->from_pool != NULL || request->asynchronous != NULL;
  return in_order ? real->cudaFreeAsync(pointer, request->stream) : real->cudaFree(pointer);
}

static cudaError_t from_device(const OocRuntime* real, const OocRequest* request, int device) {
  if (!ooc_ledger_book(device, request->bytes)) return cudaErrorMemoryAllocation;
  cudaError_t status = ooc_ask_real(real, request);
  if (status == cudaSuccess) {
    const OocBlock block = {*request->pointer, request->bytes, device, false};
    if (ooc_blocks_add(block)) return cudaSuccess;
    free_real(real, request);
    *request->pointer = NULL;
    status = cudaErrorMemoryAllocation;
  }
  ooc_ledger_return(device, request->bytes);
  return status;
}

static cudaError_t from_host(const OocRuntime* real, const OocRequest* request, int device) {
  void* const at = ooc_slabs_take(real, request->bytes);
  if (at == NULL) return cudaErrorMemoryAllocation;
  if (!ooc_blocks_add((OocBlock){at, request->bytes, device, true})) {
    ooc_slabs_give(at);
    return cudaErrorMemoryAllocation;
  }
  any_spilled = true;
  ooc_say_spilled(real, at, request->bytes);
  *request->pointer = at;
  return cudaSuccess;
}

/* Whether this thread was refused the same before; it then may ask once more. */
static bool is_repeated(int device, size_t bytes) {
  const bool same = last_refused.bytes == bytes && last_refused.device == device;
  last_refused.device = device;
  last_refused.bytes = same ? 0 : bytes;
  return same;
}

/* Looks at what the device holds besides requests, at large ones, until something has spilled: from
 * then on convolutions that run in tiles hold some of the budget, which is counted already. */
static void look_at_others(const OocRuntime* real, const OocRequest* request, int device) {
  size_t free = 0;
  size_t total = 0;
  if (any_spilled || ooc_ledger_is_small(request->bytes)) return;
  const uint64_t changes = ooc_ledger_changes(device);
  if (real->cudaMemGetInfo(&free, &total) == cudaSuccess) {
    ooc_ledger_see(device, changes, total - free);
  }
}

cudaError_t ooc_request(const OocRuntime* real, const OocRequest* request) {
  any_request = true;
  int device = 0;
  const cudaError_t unknown = real->cudaGetDevice(&device);
  if (unknown != cudaSuccess) return unknown;
  look_at_others(real, request, device);
  cudaError_t status = from_device(real, request, device);
  if (status == cudaSuccess) last_refused.bytes = 0;
  if (status != cudaErrorMemoryAllocation) return status;
  if (!ooc_settings()->refuse && is_repeated(device, request->bytes)) {
    status = from_host(real, request, device);
  }
  if (status != cudaSuccess) ++refused;
  return status;
}

/* Waits for a device, which need not be the current one. */
static cudaError_t wait_for(const OocRuntime* real, int device) {
  int current = device;
  real->cudaGetDevice(&current);
  if (current == device) return real->cudaDeviceSynchronize();
  cudaError_t status = real->cudaSetDevice(device);
  if (status == cudaSuccess) status = real->cudaDeviceSynchronize();
  const cudaError_t back = real->cudaSetDevice(current);
  return status != cudaSuccess ? status : back;
}

cudaError_t ooc_release(const OocRuntime* real, void* pointer,
                        cudaError_t (*free_real_block)(const OocRuntime*, void*, cudaStream_t),
                        cudaStream_t stream) {
  OocBlock block;
  if (!ooc_blocks_take(pointer, &block)) return free_real_block(real, pointer, stream);
  if (!block.on_host) {
    const cudaError_t status = free_real_block(real, pointer, stream);
    ooc_ledger_return(block.device, block.bytes);
    return status;
  }
  const cudaError_t status = wait_for(real, block.device);
  ooc_slabs_give(pointer);
  return status;
}
