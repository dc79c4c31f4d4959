/* Blocks: what the program was given and has not freed, by address. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct OocBlock {
  char* at;
  size_t bytes;
  int device;   /* that it was asked for */
  bool on_host; /* lies in a slab */
} OocBlock;

/* False where there is no memory for the note. */
bool ooc_blocks_add(OocBlock block);
/* Forgets the block that begins there; false where there is none. */
bool ooc_blocks_take(const void* at, OocBlock* block);
/* Forgets a block of the device, in host memory or not, whichever; false where there is none. */
bool ooc_blocks_take_any(int device, bool on_host, OocBlock* block);
/* The block that an address lies in; false where there is none. */
bool ooc_blocks_find(const void* address, OocBlock* block);
