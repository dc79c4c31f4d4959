#include "spill/requests.h"

#include <stdatomic.h>

#include "spill/blocks.h"
#include "spill/captures.h"
#include "spill/ledger.h"
#include "spill/lines.h"
#include "spill/look.h"
#include "spill/release.h"
#include "spill/settings.h"
#include "spill/slabs.h"

static atomic_bool any_request;
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

/* `told`: the runtime itself has answered, and keeps that as its last error. */
static cudaError_t from_device(const OocRuntime* real, const OocRequest* request, int device,
                               bool* told) {
  if (!ooc_ledger_book(device, request->bytes)) return cudaErrorMemoryAllocation;
  cudaError_t status = ooc_ask_real(real, request);
  *told = status != cudaSuccess;
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

/* Slabs that are free, but of the wrong size, make room for others when the host is full. */
static void* slab_for(const OocRuntime* real, size_t bytes, int device) {
  OocShortage shortage = kOocNoRoom;
  void* at = ooc_slabs_take(real, device, bytes, &shortage);
  if (at == NULL && ooc_can_wait(real, device) && ooc_slabs_trim(real, -1, bytes) > 0) {
    at = ooc_slabs_take(real, device, bytes, &shortage);
  }
  if (at == NULL) ooc_say_short(shortage, bytes);
  return at;
}

static bool from_host(const OocRuntime* real, const OocRequest* request, int device) {
  ooc_end_blocks(real);
  void* const at = slab_for(real, request->bytes, device);
  if (at == NULL) return false;
  if (!ooc_blocks_add((OocBlock){at, request->bytes, device, true})) {
    ooc_slabs_give(at);
    return false;
  }
  ooc_say_spilled(real, at, request->bytes);
  *request->pointer = at;
  return true;
}

/* Whether this thread was refused the same before; it then may ask once more. */
static bool is_repeated(int device, size_t bytes) {
  const bool same = last_refused.bytes == bytes && last_refused.device == device;
  last_refused.device = device;
  last_refused.bytes = same ? 0 : bytes;
  return same;
}

static bool may_spill(const OocRuntime* real, int device, size_t bytes) {
  if (ooc_settings()->refuse) return false;
  return ooc_capture_allows_requests(real) || is_repeated(device, bytes);
}

/* Looks at what the device holds besides requests; only the current one can be looked at. */
static void look_at_others(const OocRuntime* real, size_t bytes, int device) {
  size_t free = 0;
  size_t total = 0;
  int current = device;
  if (!ooc_ledger_wants_look(device, bytes) || ooc_capture_under_way()) return;
  if (real->cudaGetDevice(&current) != cudaSuccess || current != device) return;
  if (ooc_look(real, device, &free, &total) != cudaSuccess) ooc_forget_error(real);
}

/* Streams 1 and 2 are names, of the current device's as 0 is. */
static cudaError_t device_of(const OocRuntime* real, cudaStream_t stream, int* device) {
  if ((size_t)stream > 2 && real->cudaStreamGetDevice != NULL) {
    return real->cudaStreamGetDevice(stream, device);
  }
  return real->cudaGetDevice(device);
}

/* Clients look at the last error, too, which only the runtime can set: by a request for which no
 * device has room. It must not end a capture. */
static cudaError_t refuse(const OocRuntime* real) {
  void* nothing = NULL;
  const int mode = ooc_capture_mode(real, cudaStreamCaptureModeRelaxed);
  real->cudaMalloc(&nothing, SIZE_MAX / 2);
  ooc_capture_mode(real, mode);
  return cudaErrorMemoryAllocation;
}

cudaError_t ooc_request(const OocRuntime* real, const OocRequest* request) {
  any_request = true;
  int device = 0;
  bool told = false;
  const cudaError_t unknown = device_of(real, request->stream, &device);
  if (unknown != cudaSuccess) return unknown;
  look_at_others(real, request->bytes, device);
  const cudaError_t status = from_device(real, request, device, &told);
  if (status == cudaSuccess) last_refused.bytes = 0;
  if (status != cudaErrorMemoryAllocation) return status;
  if (may_spill(real, device, request->bytes)) {
    if (told) ooc_forget_error(real);
    if (from_host(real, request, device)) return cudaSuccess;
    told = false;
  }
  ++refused;
  return told ? status : refuse(real);
}
