/* To be preloaded: the FAIL_REALLOC-th call of realloc for a list of the spill library's has no
 * memory. Those begin with 256 entries; nothing else here asks for as much. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void* realloc(void* block, size_t bytes) {
  static int calls;
  void* (*real)(void*, size_t) = NULL;
  void* const found = dlsym(RTLD_NEXT, "realloc");
  memcpy(&real, &found, sizeof found);
  if (bytes >= 256 * 24 && bytes <= 256 * 64 && ++calls == atoi(getenv("FAIL_REALLOC")))
    return NULL;
  return real(block, bytes);
}
