// A tile of dy from one of dz and saved bits, see PoolBackwardArgs of the device.
#pragma once

#include "device/cuda/pool_backward_patch.cuh"
#include "device/cuda/shares.cuh"

namespace oocdnn::cuda {

template <class PoolBackwardPass, bool kAcross>
OOC_HOST_DEVICE PoolBackwardTask PoolBackwardTaskAt(const PoolBackwardKernelArgs& args,
                                                    unsigned number) {
  SharePlace at = PlaceAt<kAcross, kAcross ? kPoolBackwardGroup : 1>(args.shares, number);
  const int loop = kAcross ? 5 : args.shares.loop;
  PoolBackwardTask task{};
  task.count = LoopsFrom<kAcross>(args.shares, at);
  at.c *= PoolBackwardPass::kLanes;
  task.lanes = Smaller(args.channels - at.c, PoolBackwardPass::kLanes);
  task.row[0] = at.d;
  task.row[1] = at.h * PoolBackwardPass::kRows - args.start[0];
  task.row[2] = at.w * PoolBackwardPass::kColumns - args.start[1];
  task.w_step = kAcross ? PoolBackwardPass::kColumns : 0;
  task.y = OffsetOf(args.y_stride, at) + at.d * args.y_stride[3] + task.row[1] * args.y_stride[4] +
           task.row[2] * args.y_stride[5];
  task.z = OffsetOf(args.z_stride, at);
  task.bits = OffsetOf(args.saved_stride, at);
  task.y_step = args.y_stride[loop] * (kAcross ? PoolBackwardPass::kColumns : 1);
  task.z_step = kAcross ? 0 : args.z_stride[loop];
  task.bits_step = kAcross ? 0 : args.saved_stride[loop];
  return task;
}

template <class PoolBackwardPass, bool kAcross>
OOC_HOST_DEVICE void PoolBackwardAll(const PoolBackwardKernelArgs& args, unsigned number) {
  const PoolBackwardTask task = PoolBackwardTaskAt<PoolBackwardPass, kAcross>(args, number);
  PoolBackwardPass pass(args, task);
  OOC_KEEP_ROLLED
  for (int first = 0; first < task.count; first += PoolBackwardPass::kBatch) {
    OOC_UNROLL
    for (int slot = 0; slot < PoolBackwardPass::kBatch; ++slot) {
      pass.Load(first + slot < task.count ? first + slot : 0, slot);
    }
    OOC_UNROLL
    for (int slot = 0; slot < PoolBackwardPass::kBatch; ++slot) {
      if (first + slot < task.count) pass.Put(first + slot, slot);
    }
  }
}

template <class Stored, int kMode, int kWindow, bool kAcross>
OOC_HOST_DEVICE void PoolBackwardWindow(const PoolBackwardKernelArgs& args, unsigned number) {
  if (args.vector != 0) {
    PoolBackwardAll<PoolBackwardPatch<Stored, kMode, kWindow, kAcross, true>, kAcross>(args,
                                                                                       number);
  } else {
    PoolBackwardAll<PoolBackwardPatch<Stored, kMode, kWindow, kAcross, false>, kAcross>(args,
                                                                                        number);
  }
}

template <class Stored, bool kAcross>
OOC_HOST_DEVICE void PoolBackwardStored(const PoolBackwardKernelArgs& args, unsigned number) {
  switch (args.kind) {
    case kPoolBackwardEach: return PoolBackwardWindow<Stored, kNoPool, 1, kAcross>(args, number);
    case kPoolBackwardMax2: return PoolBackwardWindow<Stored, kMaxPool, 2, kAcross>(args, number);
    case kPoolBackwardMax3: return PoolBackwardWindow<Stored, kMaxPool, 3, kAcross>(args, number);
    default: return PoolBackwardWindow<Stored, kAveragePool, 2, kAcross>(args, number);
  }
}

template <bool kAcross>
OOC_HOST_DEVICE void PoolBackwardShares(const PoolBackwardKernelArgs& args, const Grid& grid) {
  OOC_THREADS(thread) {
    for (unsigned number = grid.block * grid.threads + thread; number < args.shares.count;
         number += grid.blocks * grid.threads) {
      if (args.kind == kPoolBackwardAny && args.dz_type == kF64) {
        PoolBackwardAll<PoolBackwardAny<double>, kAcross>(args, number);
      } else if (args.kind == kPoolBackwardAny) {
        PoolBackwardAll<PoolBackwardAny<float>, kAcross>(args, number);
      } else if (args.dz_type == kF16) {
        PoolBackwardStored<Half, kAcross>(args, number);
      } else if (args.dz_type == kBF16) {
        PoolBackwardStored<BFloat, kAcross>(args, number);
      } else {
        PoolBackwardStored<float, kAcross>(args, number);
      }
    }
  }
}

OOC_BODY void PoolBackward(const PoolBackwardKernelArgs& args, const Grid& grid) {
  if (args.shares.loop == 5) return PoolBackwardShares<true>(args, grid);
  PoolBackwardShares<false>(args, grid);
}

}  // namespace oocdnn::cuda
