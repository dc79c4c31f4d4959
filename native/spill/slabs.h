/* Slabs: host memory that every device reads and writes at the address that the host knows it by.
 * A slab has the size of the request that it was made for, and is never unpinned; what is given
 * back serves later requests, in parts too. Thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "spill/runtime.h"

/* Memory of that size, from what is free or a new slab. Null, with one line for the first, where
 * the host has no more or the runtime does not take it. */
void* ooc_slabs_take(const OocRuntime* real, size_t bytes);
/* Nothing may be using it. */
void ooc_slabs_give(void* at);

/* Bytes that are taken, the most that ever were, and all that is pinned. */
void ooc_slabs_figures(int64_t* taken, int64_t* peak, int64_t* pinned);
