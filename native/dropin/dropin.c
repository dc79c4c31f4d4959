/* The preloaded libcudnn.so.9: nothing happens until the first call of one of its functions. Then
 * the table of forwarders is filled once: from the real library, and over that from the core, for
 * what the core serves; where there is no GPU, from the core alone, and no real library is opened.
 *
 * OOCDNN_DISABLE=1 leaves the core out. Where something is missing, one line says so and as much as
 * there is works: a program that ran without the drop-in runs with it. */
#include "abi/dropin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/cudnn_exports.h"
#include "dropin/finder.h"

enum { kNotSupported = 3000 }; /* CUDNN_STATUS_NOT_SUPPORTED */

extern OocFunction ooc_slots[]; /* forward.S */
OocFunction ooc_filled(size_t slot);

static const char* const names[] = {
#define NAME(name, since) #name,
    OOC_CUDNN_EXPORTS(NAME)};
enum { kNames = sizeof names / sizeof *names };

static pthread_once_t searched = PTHREAD_ONCE_INIT;
static char real_path[PATH_MAX];
static bool found; /* whether real_path is set */

static pthread_once_t filled = PTHREAD_ONCE_INIT;
static void* library; /* the real one, or null */
static char reason[PATH_MAX + 256] = "this function is not in the cuDNN that was found";

static bool is_on(const char* variable) {
  const char* const value = getenv(variable);
  return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

static void say(const char* what) { fprintf(stderr, "oocdnn: %s\n", what); }

/* What stands where neither library has a function. Those that answer no status answer what says
 * least. */
static int not_supported(void) { return kNotSupported; }
static size_t no_version(void) { return 0; }
static const char* error_string(int status) {
  return status == 0 ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}
static void last_error_string(char* text, size_t bytes) {
  if (text != NULL && bytes > 0) snprintf(text, bytes, "%s", reason);
}

static OocFunction stand_in(const char* name) {
  static const OocServed others[] = {
      {"cudnnGetVersion", (OocFunction)no_version},
      {"cudnnGetMaxDeviceVersion", (OocFunction)no_version},
      {"cudnnGetCudartVersion", (OocFunction)no_version},
      {"cudnnGetErrorString", (OocFunction)error_string},
      {"cudnnGetLastErrorString", (OocFunction)last_error_string},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
    if (strcmp(name, others[i].name) == 0) return others[i].function;
  }
  return (OocFunction)not_supported;
}

static OocFunction function_of(void* object, const char* name) {
  OocFunction function = NULL;
  void* const address = object != NULL ? dlsym(object, name) : NULL;
  memcpy(&function, &address, sizeof function);
  return function;
}

static OocFunction real_function(const char* name) { return function_of(library, name); }

/* CUDA shows the devices of CUDA_VISIBLE_DEVICES up to the first that is none. */
static bool gpus_are_hidden(void) {
  const char* const visible = getenv("CUDA_VISIBLE_DEVICES");
  return visible != NULL && (*visible == '\0' || strncmp(visible, "-1", 2) == 0);
}

/* Whether a GPU may be there. The driver is not initialised for the answer: a program that only
 * asks for a version must still be able to fork. */
static bool gpu_is_likely(void) {
  static const char* const nodes[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu"};
  const char* const device = getenv("OOCDNN_DEVICE");
  if (device != NULL && strcmp(device, "cpu") == 0) return false;
  if (device != NULL && strncmp(device, "cuda", 4) == 0) return true;
  if (gpus_are_hidden()) return false;
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; ++i) {
    if (access(nodes[i], F_OK) == 0) return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
  }
  return false;
}

static void find_real(void) { found = ooc_find_real(real_path); }

static void open_real(void) {
  pthread_once(&searched, find_real);
  const char* const chosen = getenv("OOCDNN_CUDNN_LIBRARY");
  if (!found && chosen != NULL && *chosen != '\0') {
    snprintf(reason, sizeof reason,
             "no cuDNN was found at OOCDNN_CUDNN_LIBRARY=%s: no file, or the drop-in itself",
             chosen);
    return;
  }
  if (!found) {
    snprintf(reason, sizeof reason,
             "no cuDNN was found; OOCDNN_CUDNN_LIBRARY=/path/to/libcudnn.so.9 names one");
    return;
  }
  library = dlopen(real_path, RTLD_NOW | RTLD_LOCAL);
  const char* const error = library == NULL ? dlerror() : NULL;
  if (error != NULL) snprintf(reason, sizeof reason, "%s", error);
}

/* The core lies beside the drop-in's folder, in lib. */
static void* open_core(void) {
  char path[PATH_MAX + 32];
  const char* const chosen = getenv("OOCDNN_LIBRARY");
  if (chosen != NULL && *chosen != '\0') {
    snprintf(path, sizeof path, "%s", chosen);
  } else {
    char own[PATH_MAX];
    if (!ooc_own_path(own)) return NULL;
    char* const slash = strrchr(own, '/');
    if (slash != NULL) *slash = '\0';
    snprintf(path, sizeof path, "%s/../lib/liboocdnn.so", own);
  }
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static const OocServed* ask_core(OocFunction (*real)(const char*)) {
  static const char entry[] = "oocdnn_cudnn_functions";
  const OocServed* (*functions)(OocFunction (*)(const char*)) = NULL;
  const OocFunction exported = function_of(open_core(), entry);
  if (exported == NULL) {
    const char* const error = dlerror();
    fprintf(stderr, "oocdnn: the core cannot be opened (%s); nothing is taken\n",
            error != NULL ? error : "no such function");
    return NULL;
  }
  memcpy(&functions, &exported, sizeof functions);
  return functions(real);
}

static OocFunction served(const OocServed* list, const char* name) {
  for (; list != NULL && list->name != NULL; ++list) {
    if (strcmp(list->name, name) == 0) return list->function;
  }
  return NULL;
}

static void fill(void) {
  const bool disabled = is_on("OOCDNN_DISABLE");
  const bool gpu = disabled || gpu_is_likely();
  const OocServed* list = NULL;
  if (!gpu) list = ask_core(NULL);
  if (list == NULL) {
    open_real();
    if (library == NULL) say(reason);
    if (library != NULL && gpu && !disabled) list = ask_core(real_function);
  } else {
    snprintf(reason, sizeof reason, "there is no GPU, and the CPU does not serve this function");
  }
  for (size_t i = 0; i < kNames; ++i) {
    OocFunction function = served(list, names[i]);
    if (function == NULL) function = real_function(names[i]);
    if (function == NULL) function = stand_in(names[i]);
    __atomic_store_n(&ooc_slots[i], function, __ATOMIC_RELEASE);
  }
}

OocFunction ooc_filled(size_t slot) {
  pthread_once(&filled, fill);
  return __atomic_load_n(&ooc_slots[slot], __ATOMIC_ACQUIRE);
}

__attribute__((visibility("default"))) const char* oocdnn_dropin_real(void) {
  pthread_once(&searched, find_real);
  return found ? real_path : NULL;
}
