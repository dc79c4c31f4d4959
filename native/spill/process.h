/* What the driver says of this process. */
#pragma once

#include <stddef.h>

#include "spill/runtime.h"

/* Bytes that this process holds of the device, by NVML; SIZE_MAX where that knows nothing of it, as
 * in most containers. Takes milliseconds. */
size_t ooc_process_bytes(const OocRuntime* real, int device);
