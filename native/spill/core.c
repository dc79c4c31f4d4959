/* The drop-in opens the core when it takes its first call, in a scope of its own. */
#include "spill/core.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

typedef int64_t (*DeviceBytes)(int);

size_t ooc_core_bytes(int device) {
  static _Atomic DeviceBytes known;
  DeviceBytes ask = known;
  if (ask == NULL) {
    void* const core = dlopen("liboocdnn.so", RTLD_LAZY | RTLD_NOLOAD);
    if (core == NULL) return 0;
    void* const address = dlsym(core, "oocdnn_device_bytes");
    memcpy(&ask, &address, sizeof address);
    if (ask == NULL) return 0;
    known = ask;
  }
  const int64_t bytes = ask(device);
  return bytes > 0 ? (size_t)bytes : 0;
}
