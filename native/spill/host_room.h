/* What the host still has. */
#pragma once

#include <stddef.h>

/* Bytes that this process may still take: the least that the kernel's estimate and every cgroup
 * above it leave. File cache that the kernel would give back counts as free. */
size_t ooc_host_room(void);

/* The same, as /proc and /sys below `root` say. */
size_t ooc_host_room_under(const char* root);
