// What lets the kernels be compiled three ways: by nvcc, by NVRTC, and by the host's compiler for
// tests without a GPU.
//
// A kernel is a body that works on a Grid. OOC_THREADS(t) { ... } runs its block for every thread
// of the thread block: once, as this thread, on a GPU; in a loop on the host. So OOC_BARRIER stands
// between such blocks, never inside of one, and nothing lives in a thread's registers across it.
// OOC_KERNEL has the most threads of a block, and the blocks that a multiprocessor is to hold.
#pragma once

#include "device/cuda/kernel_args.h"

namespace oocdnn::cuda {

struct Grid {
  unsigned block, blocks, threads;
  void* shared;
};

#ifdef __CUDACC__
#define OOC_HOST_DEVICE static __device__ __forceinline__
#define OOC_BODY static __device__ __forceinline__
#define OOC_MEMBER __device__ __forceinline__
#define OOC_THREADS(t) for (unsigned t = threadIdx.x, ooc_once = 1; ooc_once != 0; ooc_once = 0)
#define OOC_BARRIER __syncthreads()
#define OOC_UNROLL _Pragma("unroll")
#define OOC_PRAGMA(text) _Pragma(#text)
#define OOC_UNROLL_BY(n) OOC_PRAGMA(unroll n)
#define OOC_KEEP_ROLLED OOC_UNROLL_BY(1)
extern __shared__ __align__(16) unsigned char ooc_shared[];
#define OOC_KERNEL(name, Args, most_threads, blocks, body)                                  \
  extern "C" __global__ void __launch_bounds__(most_threads, blocks)                        \
      name(const __grid_constant__ ::oocdnn::cuda::Args args) {                             \
    ::oocdnn::cuda::body(                                                                   \
        args, ::oocdnn::cuda::Grid{blockIdx.x, gridDim.x, blockDim.x,                       \
                                   ::oocdnn::cuda::ooc_shared});                            \
  }
#else
#define OOC_HOST_DEVICE static inline
#define OOC_BODY static inline
#define OOC_MEMBER inline
#define OOC_THREADS(t) for (unsigned t = 0; t < grid.threads; ++t)
#define OOC_BARRIER static_cast<void>(0)
#define OOC_UNROLL
#define OOC_UNROLL_BY(n)
#define OOC_KEEP_ROLLED
#define OOC_KERNEL(name, Args, most_threads, blocks, body)                                  \
  extern "C" void name(const void* args, unsigned block, unsigned of, unsigned threads,     \
                       void* shared) {                                                      \
    ::oocdnn::cuda::body(*static_cast<const ::oocdnn::cuda::Args*>(args),                   \
                         ::oocdnn::cuda::Grid{block, of, threads, shared});                 \
  }
#endif

OOC_HOST_DEVICE unsigned Quotient(unsigned n, const Divisor& d) {
#ifdef __CUDA_ARCH__
  const unsigned high = __umulhi(n, d.multiplier);
#else
  const unsigned high = (static_cast<unsigned long long>(n) * d.multiplier) >> 32;
#endif
  return (high + n) >> d.shift;
}

// Takes the index along a dimension off a running number.
OOC_HOST_DEVICE unsigned Take(unsigned* rest, const Divisor& extent) {
  const unsigned quotient = Quotient(*rest, extent);
  const unsigned index = *rest - quotient * extent.divisor;
  *rest = quotient;
  return index;
}

// Whether all threads of a warp say so; on the host a thread is alone.
OOC_HOST_DEVICE bool AllOfWarp(bool mine) {
#ifdef __CUDA_ARCH__
  return __all_sync(0xffffffffu, mine) != 0;
#else
  return mine;
#endif
}

// The bits of each kThreads neighbouring threads together. All threads of a warp call it. On a GPU
// all of them get these; on the host, where they gather in `room`, the last one does.
template <int kThreads>
OOC_HOST_DEVICE unsigned OrOf(unsigned bits, unsigned thread, unsigned* room) {
#ifdef __CUDA_ARCH__
  OOC_UNROLL
  for (int mask = 1; mask < kThreads; mask *= 2) bits |= __shfl_xor_sync(0xffffffffu, bits, mask);
  return bits;
#else
  *room = thread % kThreads == 0 ? bits : *room | bits;
  return *room;
#endif
}

// Stores the first bytes of what OrOf gave, at most one for each thread: that is its own to store.
template <int kThreads>
OOC_HOST_DEVICE void StoreOf(unsigned word, int bytes, unsigned thread, unsigned char* to) {
  const int element = static_cast<int>(thread % kThreads);
#ifdef __CUDA_ARCH__
  if (element < bytes) to[element] = static_cast<unsigned char>(word >> element * 8);
#else
  for (int byte = 0; byte < bytes && element == kThreads - 1; ++byte) {
    to[byte] = static_cast<unsigned char>(word >> byte * 8);
  }
#endif
}

}  // namespace oocdnn::cuda
