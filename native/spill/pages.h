/* Fresh host memory. */
#pragma once

#include <stddef.h>

/* `bytes`, a multiple of the page size, of zeros that are there already, in huge pages where the
 * system has them, and that a forked child does not inherit. Null where the system has none. */
void* ooc_pages_map(size_t bytes);
void ooc_pages_unmap(void* at, size_t bytes);
size_t ooc_page_bytes(void);
