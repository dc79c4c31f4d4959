#include "spill/host_room.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The number that a file holds; `otherwise` where it holds none ("max"), or is not there. */
static size_t number_in(const char* path, size_t otherwise) {
  FILE* const file = fopen(path, "re");
  if (file == NULL) return otherwise;
  unsigned long long number = 0;
  if (fscanf(file, "%llu", &number) != 1) number = otherwise;
  fclose(file);
  return (size_t)number;
}

static size_t available(void) {
  FILE* const file = fopen("/proc/meminfo", "re");
  char line[128];
  unsigned long long kib = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  }
  if (file != NULL) fclose(file);
  return (size_t)kib << 10;
}

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

size_t ooc_host_room(void) {
  static const char* const groups[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
       "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
  };
  size_t room = available();
  for (size_t i = 0; i < sizeof groups / sizeof *groups; ++i) {
    const size_t inside = less(number_in(groups[i][0], SIZE_MAX), number_in(groups[i][1], 0));
    if (inside < room) room = inside;
  }
  return room;
}
