// The kernels' entry points, under the names by which the host finds them. Self-contained: nvcc
// makes a fat binary of it when the library is built, or NVRTC a binary for one GPU at first use.
#include "device/cuda/bias.cuh"
#include "device/cuda/copy.cuh"
#include "device/cuda/direct.cuh"
#include "device/cuda/finish.cuh"
#include "device/cuda/make.cuh"
#include "device/cuda/restore.cuh"

OOC_KERNEL(ooc_rows, RowsArgs, 1024, Rows)
OOC_KERNEL(ooc_transpose, TransposeArgs, 1024, Transpose)
OOC_KERNEL(ooc_zero, ZeroArgs, 1024, ZeroBoxes)
OOC_KERNEL(ooc_finish, FinishKernelArgs, 256, Finish)
OOC_KERNEL(ooc_make, MakeKernelArgs, 256, Make)
OOC_KERNEL(ooc_restore, RestoreKernelArgs, 256, Restore)
OOC_KERNEL(ooc_direct_gather, DirectArgs, 256, DirectGather)
OOC_KERNEL(ooc_direct_filter, DirectArgs, 256, DirectFilter)
OOC_KERNEL(ooc_bias_parts, BiasArgs, 128, BiasParts)
OOC_KERNEL(ooc_bias_chain, BiasArgs, 128, BiasChain)
