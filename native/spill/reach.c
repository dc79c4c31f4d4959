/* Some programs get their device memory past the runtime that stands behind this library. At their
 * end, when it is known that no request was seen, one line says so, and why, where that is known.
 * Nothing could be said before, because none of our functions was called. */
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spill/requests.h"
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

/* Null where nothing speaks for a program that uses device memory. */
static const char* way_past(void) {
  if (is_mapped("/libc10_cuda.so")) {
    const bool set = has_setting("PYTORCH_CUDA_ALLOC_CONF") || has_setting("PYTORCH_ALLOC_CONF");
    return set ? "PyTorch's expandable_segments ask the driver" : NULL;
  }
  if (is_mapped("xla_cuda")) return "JAX asks the driver";
  if (is_mapped("cupy_backends")) return "CuPy has a runtime of its own inside";
  if (is_mapped("/libcudart.so.1")) return NULL;
  return "the program asks the driver, or has a static runtime inside";
}

__attribute__((destructor)) static void say_what_was_not_reached(void) {
  if (ooc_any_request() || !is_mapped("/libcuda.so.1") || !ooc_settings()->on) return;
  const char* const way = way_past();
  if (way != NULL) fprintf(stderr, "oocdnn: no limit was kept and nothing spilled: %s\n", way);
}
