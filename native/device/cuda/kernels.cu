// The kernels' entry points, under the names by which the host finds them. Self-contained: nvcc
// makes a fat binary of it when the library is built, or NVRTC a binary for one GPU at first use.
#include "device/cuda/bias.cuh"
#include "device/cuda/copy.cuh"
#include "device/cuda/dense.cuh"
#include "device/cuda/dense_planes.cuh"
#include "device/cuda/depthwise.cuh"
#include "device/cuda/depthwise_filter.cuh"
#include "device/cuda/direct.cuh"
#include "device/cuda/finish.cuh"
#include "device/cuda/fp32x3.cuh"
#include "device/cuda/norm.cuh"
#include "device/cuda/pool_backward.cuh"
#include "device/cuda/pool_forward.cuh"

// The body for 9.0 has more threads, and a multiprocessor for itself.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define OOC_FP32X3(name, blocks, body) OOC_KERNEL(name, Fp32x3Args, 512, 1, body)
#else
#define OOC_FP32X3(name, blocks, body) OOC_KERNEL(name, Fp32x3Args, 128, blocks, body)
#endif

OOC_KERNEL(ooc_rows, RowsArgs, 1024, 1, Rows)
OOC_KERNEL(ooc_transpose, TransposeArgs, 1024, 1, Transpose)
OOC_KERNEL(ooc_zero, ZeroArgs, 1024, 1, ZeroBoxes)
OOC_KERNEL(ooc_finish, FinishKernelArgs, 256, 1, Finish)
OOC_KERNEL(ooc_pool_forward, PoolForwardKernelArgs, 256, 4, PoolForward)
OOC_KERNEL(ooc_dense, DenseArgs, 256, 4, Dense)
OOC_KERNEL(ooc_planes, DenseArgs, 256, 4, Planes)
OOC_KERNEL(ooc_pool_backward, PoolBackwardKernelArgs, 256, 4, PoolBackward)
OOC_KERNEL(ooc_normalize, NormKernelArgs, 256, 1, Normalize)
OOC_KERNEL(ooc_sum, NormKernelArgs, 1024, 1, SumUp)
OOC_KERNEL(ooc_direct_gather, DirectArgs, 256, 4, DirectGather)
OOC_KERNEL(ooc_direct_filter, DirectArgs, 256, 3, DirectFilter)
OOC_KERNEL(ooc_direct_elements, DirectArgs, 256, 2, DirectElements)
OOC_KERNEL(ooc_depthwise, DepthwiseArgs, 256, 4, Depthwise)
OOC_KERNEL(ooc_depthwise_filter, DepthwiseFilterArgs, 256, 4, DepthwiseFilter)
OOC_KERNEL(ooc_depthwise_add, DepthwiseFilterArgs, 256, 1, DepthwiseAdd)
OOC_FP32X3(ooc_fp32x3_gather, 2, Fp32x3Gather)
OOC_FP32X3(ooc_fp32x3_gather_narrow, 3, Fp32x3GatherNarrow)
OOC_FP32X3(ooc_fp32x3_filter, 2, Fp32x3Filter)
OOC_FP32X3(ooc_fp32x3_filter_narrow, 3, Fp32x3FilterNarrow)
OOC_FP32X3(ooc_fp32x3_filter_transposed, 3, Fp32x3FilterTransposed)
OOC_KERNEL(ooc_fp32x3_add, Fp32x3AddArgs, 256, 1, Fp32x3Add)
OOC_KERNEL(ooc_bias_parts, BiasArgs, 128, 1, BiasParts)
OOC_KERNEL(ooc_bias_chain, BiasArgs, 128, 1, BiasChain)
