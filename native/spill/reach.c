/* Some programs get their device memory past the runtime that stands behind this library. At their
 * end, when it is known that no request was seen, one line says so, and why, where that is known.
 * Nothing could be said before, because none of our functions was called. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "abi/spill.h"
#include "spill/requests.h"
#include "spill/say.h"
#include "spill/settings.h"

typedef struct Mapped {
  const char* part; /* of a path */
  bool found;
} Mapped;

static int look(struct dl_phdr_info* info, size_t size, void* argument) {
  (void)size;
  Mapped* const mapped = argument;
  mapped->found = strstr(info->dlpi_name, mapped->part) != NULL;
  return mapped->found;
}

static bool is_mapped(const char* part) {
  Mapped mapped = {part, false};
  dl_iterate_phdr(look, &mapped);
  return mapped.found;
}

static bool has_setting(const char* variable) {
  const char* const value = getenv(variable);
  return value != NULL && strstr(value, "expandable_segments:True") != NULL;
}

typedef int (*DeviceCount)(int*);
typedef int (*Device)(int*, int);
typedef int (*ContextState)(int, unsigned*, int*);
enum { kDeinitialized = 4 }; /* CUDA_ERROR_DEINITIALIZED */

static void find(void* library, const char* name, void* function) {
  void* const address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
}

static bool is_active(Device device_of, ContextState state_of, int ordinal) {
  int device = 0;
  unsigned flags = 0;
  int active = 0;
  return device_of(&device, ordinal) == 0 && state_of(device, &flags, &active) == 0 && active != 0;
}

/* Whether the process has a context of a device. A driver that has ended before us was used. */
static bool has_context(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == NULL) return false;
  DeviceCount count_of = NULL;
  Device device_of = NULL;
  ContextState state_of = NULL;
  find(driver, "cuDeviceGetCount", &count_of);
  find(driver, "cuDeviceGet", &device_of);
  find(driver, "cuDevicePrimaryCtxGetState", &state_of);
  if (count_of == NULL || device_of == NULL || state_of == NULL) return false;
  int count = 0;
  const int status = count_of(&count);
  if (status != 0) return status == kDeinitialized;
  for (int i = 0; i < count; ++i) {
    if (is_active(device_of, state_of, i)) return true;
  }
  return false;
}

/* Null where nothing speaks for a program that uses device memory. */
static const char* way_past(void) {
  if (is_mapped("/libc10_cuda.so")) {
    if (has_setting("PYTORCH_CUDA_ALLOC_CONF") || has_setting("PYTORCH_ALLOC_CONF")) {
      return "PyTorch's expandable_segments ask the driver";
    }
    return has_context() ? "PyTorch asks the driver, as with expandable_segments, or asks nothing"
                         : NULL;
  }
  if (is_mapped("xla_cuda")) return "JAX asks the driver";
  if (is_mapped("cupy_backends")) return "CuPy has a runtime of its own inside";
  if (!is_mapped("/libcudart.so.1")) {
    return "the program asks the driver, or has a static runtime inside";
  }
  return has_context() ? "the program asks the driver, or the runtime by dlsym" : NULL;
}

static atomic_bool planned;

__attribute__((visibility("default"))) void oocdnn_spill_planned(void) {
  atomic_store(&planned, true);
  ooc_settings_end();
}

__attribute__((destructor)) static void say_what_was_not_reached(void) {
  if (atomic_load(&planned) || ooc_any_request() || !is_mapped("/libcuda.so.1") ||
      !ooc_settings()->on)
    return;
  const char* const way = way_past();
  if (way != NULL) ooc_say(kOocWarn, "no limit was kept and nothing spilled: %s", way);
}
