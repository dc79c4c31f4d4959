// What marks functions of one element that all back ends share. Host compilers and NVRTC read this
// file and those that include it, so on a GPU they do without standard headers.
#pragma once

#ifdef __CUDACC__
#define OOC_ELEMENT static __device__ __forceinline__
#else
#define OOC_ELEMENT static inline __attribute__((always_inline))
#endif
