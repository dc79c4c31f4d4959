// A tile of dy from one of dz and saved bits, see RestoreArgs of the device.
#pragma once

#include "device/cuda/restore_patch.cuh"
#include "device/cuda/shares.cuh"

namespace oocdnn::cuda {

template <class Restorer, bool kAcross>
OOC_HOST_DEVICE RestoreTask RestoreTaskAt(const RestoreKernelArgs& args, unsigned number) {
  SharePlace at = PlaceAt<kAcross, kAcross ? kRestoreGroup : 1>(args.shares, number);
  const int loop = kAcross ? 5 : args.shares.loop;
  RestoreTask task{};
  task.count = LoopsFrom<kAcross>(args.shares, at);
  at.c *= Restorer::kLanes;
  task.lanes = Smaller(args.channels - at.c, Restorer::kLanes);
  task.row[0] = at.d;
  task.row[1] = at.h * Restorer::kRows - args.start[0];
  task.row[2] = at.w * Restorer::kColumns - args.start[1];
  task.w_step = kAcross ? Restorer::kColumns : 0;
  task.y = OffsetOf(args.y_stride, at) + at.d * args.y_stride[3] + task.row[1] * args.y_stride[4] +
           task.row[2] * args.y_stride[5];
  task.z = OffsetOf(args.z_stride, at);
  task.bits = OffsetOf(args.saved_stride, at);
  task.y_step = args.y_stride[loop] * (kAcross ? Restorer::kColumns : 1);
  task.z_step = kAcross ? 0 : args.z_stride[loop];
  task.bits_step = kAcross ? 0 : args.saved_stride[loop];
  return task;
}

template <class Restorer, bool kAcross>
OOC_HOST_DEVICE void RestoreAll(const RestoreKernelArgs& args, unsigned number) {
  const RestoreTask task = RestoreTaskAt<Restorer, kAcross>(args, number);
  Restorer restorer(args, task);
  OOC_KEEP_ROLLED
  for (int first = 0; first < task.count; first += Restorer::kBatch) {
    OOC_UNROLL
    for (int slot = 0; slot < Restorer::kBatch; ++slot) {
      restorer.Load(first + slot < task.count ? first + slot : 0, slot);
    }
    OOC_UNROLL
    for (int slot = 0; slot < Restorer::kBatch; ++slot) {
      if (first + slot < task.count) restorer.Put(first + slot, slot);
    }
  }
}

template <class Stored, int kMode, int kWindow, bool kAcross>
OOC_HOST_DEVICE void RestoreWindow(const RestoreKernelArgs& args, unsigned number) {
  if (args.vector != 0) {
    RestoreAll<RestorePatch<Stored, kMode, kWindow, kAcross, true>, kAcross>(args, number);
  } else {
    RestoreAll<RestorePatch<Stored, kMode, kWindow, kAcross, false>, kAcross>(args, number);
  }
}

template <class Stored, bool kAcross>
OOC_HOST_DEVICE void RestoreStored(const RestoreKernelArgs& args, unsigned number) {
  switch (args.kind) {
    case kRestoreEach: return RestoreWindow<Stored, kNoPool, 1, kAcross>(args, number);
    case kRestoreMax2: return RestoreWindow<Stored, kMaxPool, 2, kAcross>(args, number);
    case kRestoreMax3: return RestoreWindow<Stored, kMaxPool, 3, kAcross>(args, number);
    default: return RestoreWindow<Stored, kAveragePool, 2, kAcross>(args, number);
  }
}

template <bool kAcross>
OOC_HOST_DEVICE void RestoreShares(const RestoreKernelArgs& args, const Grid& grid) {
  OOC_THREADS(thread) {
    for (unsigned number = grid.block * grid.threads + thread; number < args.shares.count;
         number += grid.blocks * grid.threads) {
      if (args.kind == kRestoreAny && args.dz_type == kF64) {
        RestoreAll<RestoreAny<double>, kAcross>(args, number);
      } else if (args.kind == kRestoreAny) {
        RestoreAll<RestoreAny<float>, kAcross>(args, number);
      } else if (args.dz_type == kF16) {
        RestoreStored<Half, kAcross>(args, number);
      } else if (args.dz_type == kBF16) {
        RestoreStored<BFloat, kAcross>(args, number);
      } else {
        RestoreStored<float, kAcross>(args, number);
      }
    }
  }
}

OOC_BODY void Restore(const RestoreKernelArgs& args, const Grid& grid) {
  if (args.shares.loop == 5) return RestoreShares<true>(args, grid);
  RestoreShares<false>(args, grid);
}

}  // namespace oocdnn::cuda
