/* The part of NVRTC's interface that we use, in declarations of our own. The same in CUDA 12 and
 * 13. OOC_NVRTC_FUNCTIONS is the one list: it makes the table of functions and what fills it. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int nvrtcResult; /* 0 is success */
typedef struct _nvrtcProgram* nvrtcProgram;

/* F(name, parameters) */
#define OOC_NVRTC_FUNCTIONS(F)                                                          \
  F(nvrtcVersion, (int* major, int* minor))                                             \
  F(nvrtcCreateProgram,                                                                 \
    (nvrtcProgram * program, const char* source, const char* name, int headers,         \
     const char* const* header_sources, const char* const* header_names))               \
  F(nvrtcDestroyProgram, (nvrtcProgram * program))                                      \
  F(nvrtcCompileProgram, (nvrtcProgram program, int count, const char* const* options)) \
  F(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t* bytes))                      \
  F(nvrtcGetProgramLog, (nvrtcProgram program, char* log))                              \
  F(nvrtcGetCUBINSize, (nvrtcProgram program, size_t* bytes))                           \
  F(nvrtcGetCUBIN, (nvrtcProgram program, char* cubin))

#ifdef __cplusplus
}
#endif
