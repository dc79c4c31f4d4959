/* A runtime is found by its name among what is loaded, never by RTLD_NEXT: one that Python opened
 * is in no scope of ours. */
#include "spill/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define SONAME_12 "libcudart.so.12"
#define SONAME_13 "libcudart.so.13"

static pthread_once_t once_12 = PTHREAD_ONCE_INIT;
static pthread_once_t once_13 = PTHREAD_ONCE_INIT;
static OocRuntime runtime_12, runtime_13;

/* A name that is asked for without a version is of 13, and meant for the one that is there. */
static void fill(OocRuntime* runtime, const char* soname, const char* otherwise) {
  void* library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) library = dlopen(otherwise, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return;
#define FIND(name, parameters)                        \
  {                                                   \
    void* const address = dlsym(library, #name);      \
    memcpy(&runtime->name, &address, sizeof address); \
  }
  OOC_RUNTIME_SERVED(FIND)
  OOC_RUNTIME_USED(FIND)
#undef FIND
}

static void fill_12(void) { fill(&runtime_12, SONAME_12, SONAME_13); }
static void fill_13(void) { fill(&runtime_13, SONAME_13, SONAME_12); }

const OocRuntime* ooc_runtime(int version) {
  if (version == 12) {
    pthread_once(&once_12, fill_12);
    return &runtime_12;
  }
  pthread_once(&once_13, fill_13);
  return &runtime_13;
}
