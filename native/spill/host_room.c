/* Every file may be missing (containers hide some, other systems have none); what cannot be read
 * does not limit. The core reads the same by itself: base/host.cpp. */
#include "spill/host_room.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "spill/sizes.h"

enum { kPath = 4096 };

typedef struct Version {
  const char *mount, *controller, *limit, *usage, *cache;
} Version;
static const Version kVersions[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

static FILE* open_in(const char* folder, const char* name) {
  char path[kPath];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length < kPath ? fopen(path, "re") : NULL;
}

/* False where the file holds no number ("max"), or is not there. */
static bool number_in(const char* folder, const char* name, size_t* number) {
  FILE* const file = open_in(folder, name);
  if (file == NULL) return false;
  unsigned long long value = 0;
  const bool found = fscanf(file, "%llu", &value) == 1;
  fclose(file);
  *number = (size_t)value;
  return found;
}

/* The number behind the key in a file of lines "key value". */
static size_t field_in(const char* folder, const char* name, const char* key, size_t otherwise) {
  FILE* const file = open_in(folder, name);
  char line[256];
  char word[128];
  unsigned long long value = 0;
  bool found = false;
  while (!found && file != NULL && fgets(line, sizeof line, file) != NULL) {
    found = sscanf(line, "%127s %llu", word, &value) == 2 && strcmp(word, key) == 0;
  }
  if (file != NULL) fclose(file);
  return found ? (size_t)value : otherwise;
}

static size_t left_in_group(const char* folder, const Version* version) {
  size_t limit = 0;
  size_t usage = 0;
  if (!number_in(folder, version->limit, &limit)) return SIZE_MAX;
  if (!number_in(folder, version->usage, &usage)) return SIZE_MAX;
  return ooc_less(limit, ooc_less(usage, field_in(folder, "memory.stat", version->cache, 0)));
}

/* Whether `name` is one of a list with commas; an empty list has the one name "". */
static bool has_name(const char* list, const char* name) {
  const size_t length = strlen(name);
  for (;;) {
    const size_t part = strcspn(list, ",");
    if (part == length && strncmp(list, name, length) == 0) return true;
    if (list[part] == '\0') return false;
    list += part + 1;
  }
}

/* This process's path in the hierarchy of a controller; "" where there is none. */
static void find_group(const char* root, const char* controller, char* path) {
  *path = '\0';
  FILE* const file = open_in(root, "proc/self/cgroup");
  char line[kPath];
  while (*path == '\0' && file != NULL && fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* const list = strchr(line, ':'); /* id:controller,controller:path */
    char* const end = list != NULL ? strchr(list + 1, ':') : NULL;
    if (end == NULL) continue;
    *end = '\0';
    if (has_name(list + 1, controller)) strcpy(path, end + 1);
  }
  if (file != NULL) fclose(file);
}

/* In the group and all above it up to the mount. Inside a container the path may not be visible,
 * then the mount itself is the group. */
static size_t left_in_version(const char* root, const Version* version) {
  char path[kPath];
  char folder[2 * kPath];
  size_t left = SIZE_MAX;
  find_group(root, version->controller, path);
  for (;;) {
    snprintf(folder, sizeof folder, "%s%s%s", root, version->mount, path);
    left = ooc_least(left, left_in_group(folder, version));
    char* const end = strrchr(path, '/');
    if (end == NULL) break;
    *end = '\0';
  }
  return left;
}

size_t ooc_host_room_under(const char* root) {
  size_t room = SIZE_MAX;
  const size_t kib = field_in(root, "proc/meminfo", "MemAvailable:", SIZE_MAX);
  if (kib != SIZE_MAX) room = ooc_times(kib, 1024);
  for (size_t i = 0; i < sizeof kVersions / sizeof *kVersions; ++i) {
    room = ooc_least(room, left_in_version(root, &kVersions[i]));
  }
  return room;
}

size_t ooc_host_room(void) { return ooc_host_room_under(""); }
