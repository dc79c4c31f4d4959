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

/* Of libcudart.so.`version`, 12 or 13. */
const OocRuntime* ooc_runtime(int version);
