/* The core library, where it is loaded. */
#pragma once

#include <stddef.h>

/* What oocdnn itself holds of the device, which the budget counts already. */
size_t ooc_core_bytes(int device);
