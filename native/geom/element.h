// OOC_ELEMENT: a function of one element, for the host and for a GPU. NVRTC compiles this file and
// those that include it; for a GPU they include no standard header.
#pragma once

#ifdef __CUDACC__
#define OOC_ELEMENT static __device__ __forceinline__
#else
#define OOC_ELEMENT static inline __attribute__((always_inline))
#endif
