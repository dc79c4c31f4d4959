/* Looks at what a card holds besides the program's requests. */
#pragma once

#include <stddef.h>

#include "spill/runtime.h"

/* Calls cudaMemGetInfo, for the current device, and tells the ledger. */
cudaError_t ooc_look(const OocRuntime* real, int device, size_t* free, size_t* total);
