/* A program that opens cuDNN while it runs, in the way that its first argument says, and calls it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef size_t (*Version)(void);

int main(int count, char** arguments) {
  const char* const way = count > 1 ? arguments[1] : "";
  int flags = RTLD_NOW | RTLD_LOCAL;
  if (strcmp(way, "deepbind") == 0) flags |= RTLD_DEEPBIND;
  if (strcmp(way, "lazy") == 0) flags = RTLD_LAZY | RTLD_LOCAL;
  void* const library =
      strcmp(way, "default") == 0 ? RTLD_DEFAULT : dlopen(count > 2 ? arguments[2] : "", flags);
  const Version version = (Version)dlsym(library, count > 3 ? arguments[3] : "cudnnGetVersion");
  if (version == NULL) return puts("nothing found"), 1;
  printf("%zu\n", version());
  return 0;
}
