/* What the host still has. */
#pragma once

#include <stddef.h>

/* Bytes that this process may still take: the kernel's estimate, within its cgroup. */
size_t ooc_host_room(void);
