/* What the user is told, in one line each. */
#pragma once

#include <stddef.h>

#include "spill/runtime.h"

/* That host memory serves requests from here on, and what that costs; said for the first block,
 * whose contents are lost. */
void ooc_say_spilled(const OocRuntime* real, void* block, size_t bytes);
