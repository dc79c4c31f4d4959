/* What the user is told of host memory, in one line each. */
#pragma once

#include <stddef.h>

#include "spill/blocks.h"
#include "spill/runtime.h"
#include "spill/slabs.h"

/* That host memory serves requests from here on, and what that costs; said for the first block,
 * whose contents are lost. During a capture nothing can be measured. */
void ooc_say_spilled(const OocRuntime* real, void* block, size_t bytes);

/* Why a request found no host memory; each reason once. */
void ooc_say_short(OocShortage shortage, size_t bytes);

/* That other processes get no handle of the block; once. */
void ooc_say_not_shared(const OocBlock* block);
