/* A runtime is found by its name among what is loaded, never by RTLD_NEXT: one that Python opened
 * is in no scope of ours. It may be loaded after a first call, so only what was found is kept. */
#include "spill/runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

typedef struct Found {
  const char *soname, *otherwise;
  atomic_bool filled; /* `functions` changes no more */
  OocRuntime functions;
} Found;

/* A name that is asked for without a version is of 13, and meant for the one that is there. */
static Found found_12 = {.soname = "libcudart.so.12", .otherwise = "libcudart.so.13"};
static Found found_13 = {.soname = "libcudart.so.13", .otherwise = "libcudart.so.12"};
static const OocRuntime none;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void fill(OocRuntime* runtime, void* library) {
#define FIND(name, parameters)                        \
  {                                                   \
    void* const address = dlsym(library, #name);      \
    memcpy(&runtime->name, &address, sizeof address); \
  }
  OOC_RUNTIME_SERVED(FIND)
  OOC_RUNTIME_USED(FIND)
#undef FIND
}

/* Outside of the lock, because the loader's own may be held by who waits for ours. */
static void* loaded(const Found* found) {
  void* const library = dlopen(found->soname, RTLD_LAZY | RTLD_NOLOAD);
  return library != NULL ? library : dlopen(found->otherwise, RTLD_LAZY | RTLD_NOLOAD);
}

static bool look_for(Found* found) {
  void* const library = loaded(found);
  if (library == NULL) return false;
  OocRuntime functions;
  fill(&functions, library);
  pthread_mutex_lock(&lock);
  if (!found->filled) {
    found->functions = functions;
    found->filled = true;
  }
  pthread_mutex_unlock(&lock);
  return true;
}

const OocRuntime* ooc_runtime(int version) {
  Found* const found = version == 12 ? &found_12 : &found_13;
  return found->filled || look_for(found) ? &found->functions : &none;
}
