/* Slabs: host memory that a device reads and writes at the address that the host knows it by. A
 * slab has the size of the request that it was made for, and belongs to the device whose request it
 * was; what is given back serves later requests of that device, in parts too. Thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "spill/runtime.h"

typedef enum OocShortage { kOocNoRoom, kOocPinnedLimit, kOocNotPinned, kOocShortages } OocShortage;

/* Memory of that size, from what is free or a new slab; the device is the current one. Null, with
 * the reason, where the host has no more or the runtime does not take it. */
void* ooc_slabs_take(const OocRuntime* real, int device, size_t bytes, OocShortage* shortage);
/* Nothing may be using it. */
void ooc_slabs_give(void* at);

/* Unpins slabs that are free as a whole, until `bytes` are the system's again, or there are no more
 * of them; those of one device, or of all for -1. The bytes. One that the runtime does not unpin is
 * lost. */
size_t ooc_slabs_trim(const OocRuntime* real, int device, size_t bytes);

/* Bytes that are taken, the most that ever were, and all that is pinned. */
void ooc_slabs_figures(int64_t* taken, int64_t* peak, int64_t* pinned);
