/* NVML lists the processes of a GPU with what each holds, by numbers of its own name space. */
#include "spill/process.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { kProcesses = 256, kBusId = 32 };

typedef struct Process {
  unsigned pid;
  unsigned long long bytes; /* all ones where it is not known */
  unsigned instances[2];
} Process;

typedef struct Nvml {
  int (*nvmlInit_v2)(void);
  int (*nvmlShutdown)(void);
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char*, void**);
  int (*nvmlDeviceGetComputeRunningProcesses_v3)(void*, unsigned*, Process*);
} Nvml;

static bool find(void* library, const char* name, void* function) {
  void* const address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static bool fill(Nvml* nvml, void* library) {
#define FIND(name) find(library, #name, &nvml->name)
  return FIND(nvmlInit_v2) && FIND(nvmlShutdown) && FIND(nvmlDeviceGetHandleByPciBusId_v2) &&
         FIND(nvmlDeviceGetComputeRunningProcesses_v3);
#undef FIND
}

static size_t bytes_of(const Nvml* nvml, const char* bus) {
  Process all[kProcesses];
  unsigned count = kProcesses;
  void* device = NULL;
  if (nvml->nvmlDeviceGetHandleByPciBusId_v2(bus, &device) != 0) return SIZE_MAX;
  if (nvml->nvmlDeviceGetComputeRunningProcesses_v3(device, &count, all) != 0) return SIZE_MAX;
  for (unsigned i = 0; i < count && i < kProcesses; ++i) {
    if (all[i].pid == (unsigned)getpid()) return (size_t)all[i].bytes;
  }
  return SIZE_MAX;
}

size_t ooc_process_bytes(const OocRuntime* real, int device) {
  char bus[kBusId];
  Nvml nvml;
  if (real->cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess) {
    ooc_forget_error(real);
    return SIZE_MAX;
  }
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  if (library == NULL) return SIZE_MAX;
  size_t bytes = SIZE_MAX;
  if (fill(&nvml, library) && nvml.nvmlInit_v2() == 0) {
    bytes = bytes_of(&nvml, bus);
    nvml.nvmlShutdown();
  }
  dlclose(library);
  return bytes;
}
