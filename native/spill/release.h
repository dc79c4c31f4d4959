/* The end of blocks. Those in host memory wait for their device, because programs count on cudaFree
 * to do so; during a capture, which a wait would end, they wait until it is over. */
#pragma once

#include <stdbool.h>

#include "spill/runtime.h"

/* `free_real` frees what lies on the device, with `stream`. A block whose wait fails is not freed,
 * and the answer is that of the wait. */
cudaError_t ooc_release(const OocRuntime* real, void* pointer,
                        cudaError_t (*free_real)(const OocRuntime*, void*, cudaStream_t),
                        cudaStream_t stream);

/* Gives back what was freed during captures, if none is under way any more. */
void ooc_end_blocks(const OocRuntime* real);

/* Whether a wait for the device is allowed, and has succeeded. */
bool ooc_can_wait(const OocRuntime* real, int device);

/* Calls cudaDeviceReset. The current device's blocks and slabs are no more, in the ledger too. */
cudaError_t ooc_reset(const OocRuntime* real);
