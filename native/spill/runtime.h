/* The real functions of the CUDA runtimes that the process has loaded. */
#pragma once

#include "abi/runtime.h"

/* Null where the runtime lacks one. */
typedef struct OocRuntime {
#define OOC_MEMBER(name, parameters) OocFn_##name name;
  OOC_RUNTIME_SERVED(OOC_MEMBER)
  OOC_RUNTIME_USED(OOC_MEMBER)
#undef OOC_MEMBER
} OocRuntime;

/* Of libcudart.so.`version`, 12 or 13; all null while it is not loaded. */
const OocRuntime* ooc_runtime(int version);

/* The runtime keeps a thread's last error, and programs die of one that they did not cause: who
 * goes on after a call of the runtime that failed makes it forget. */
static inline void ooc_forget_error(const OocRuntime* real) { real->cudaGetLastError(); }
