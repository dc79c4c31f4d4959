#include "spill/release.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "spill/blocks.h"
#include "spill/captures.h"
#include "spill/ledger.h"
#include "spill/slabs.h"

/* Freed during captures. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static OocBlock* ended;
static size_t count, room;

/* Waits for a device, which need not be the current one. */
static cudaError_t wait_for(const OocRuntime* real, int device) {
  int current = device;
  cudaError_t status = real->cudaGetDevice(&current);
  if (status != cudaSuccess) return status;
  if (current == device) return real->cudaDeviceSynchronize();
  status = real->cudaSetDevice(device);
  if (status == cudaSuccess) status = real->cudaDeviceSynchronize();
  const cudaError_t back = real->cudaSetDevice(current);
  return status != cudaSuccess ? status : back;
}

bool ooc_can_wait(const OocRuntime* real, int device) {
  if (ooc_capture_under_way()) return false;
  const bool waited = wait_for(real, device) == cudaSuccess;
  if (!waited) ooc_forget_error(real);
  return waited;
}

/* What finds no place in the list is lost. */
static void put_off(OocBlock block) {
  pthread_mutex_lock(&lock);
  if (count == room) {
    const size_t more = room == 0 ? 16 : 2 * room;
    OocBlock* const moved = realloc(ended, more * sizeof *ended);
    if (moved != NULL) {
      ended = moved;
      room = more;
    }
  }
  if (count < room) ended[count++] = block;
  pthread_mutex_unlock(&lock);
}

static bool take_ended(OocBlock* block) {
  pthread_mutex_lock(&lock);
  const bool found = count > 0;
  if (found) *block = ended[--count];
  pthread_mutex_unlock(&lock);
  return found;
}

void ooc_end_blocks(const OocRuntime* real) {
  OocBlock block;
  while (!ooc_capture_under_way() && take_ended(&block)) {
    if (!ooc_can_wait(real, block.device)) {
      put_off(block);
      return;
    }
    ooc_slabs_give(block.at);
  }
}

static cudaError_t release_host(const OocRuntime* real, OocBlock block) {
  if (ooc_capture_under_way()) {
    put_off(block);
    return cudaSuccess;
  }
  const cudaError_t status = wait_for(real, block.device);
  if (status == cudaSuccess) {
    ooc_slabs_give(block.at);
  } else {
    ooc_blocks_add(block);
  }
  return status;
}

cudaError_t ooc_release(const OocRuntime* real, void* pointer,
                        cudaError_t (*free_real_block)(const OocRuntime*, void*, cudaStream_t),
                        cudaStream_t stream) {
  OocBlock block;
  if (!ooc_blocks_take(pointer, &block)) return free_real_block(real, pointer, stream);
  if (block.on_host) {
    ooc_end_blocks(real);
    return release_host(real, block);
  }
  const cudaError_t status = free_real_block(real, pointer, stream);
  ooc_ledger_return(block.device, block.bytes);
  return status;
}

/* Slabs are unpinned while there is a context in which they are pinned. Where the device does not
 * answer any more, that fails, and they are lost; but they serve nobody again. */
cudaError_t ooc_reset(const OocRuntime* real) {
  int device = 0;
  OocBlock block;
  if (real->cudaGetDevice(&device) != cudaSuccess) return real->cudaDeviceReset();
  ooc_end_blocks(real);
  ooc_can_wait(real, device);
  while (ooc_blocks_take_any(device, true, &block)) ooc_slabs_give(block.at);
  ooc_slabs_trim(real, device, SIZE_MAX);
  const cudaError_t status = real->cudaDeviceReset();
  while (ooc_blocks_take_any(device, false, &block)) ooc_ledger_return(block.device, block.bytes);
  return status;
}
