// A tile of dy from one of dz and saved bits, see RestoreArgs of the device.
#pragma once

#include "device/cuda/restore_one.cuh"
#include "device/cuda/shares.cuh"

namespace oocdnn::cuda {

template <bool kAcross>
OOC_HOST_DEVICE RestoreTask RestoreTaskAt(const RestoreKernelArgs& args, unsigned number) {
  const SharePlace at = PlaceAt<kAcross, kAcross ? kRestoreGroup : 1>(args.shares, number);
  const int loop = kAcross ? 5 : args.shares.loop;
  RestoreTask task{};
  task.row[0] = at.d;
  task.row[1] = at.h;
  task.row[2] = at.w;
  task.w_step = kAcross ? 1 : 0;
  task.y = OffsetOf(args.y_stride, at) + at.d * args.y_stride[3] + at.h * args.y_stride[4] +
           at.w * args.y_stride[5];
  task.z = OffsetOf(args.z_stride, at);
  task.bits = OffsetOf(args.saved_stride, at);
  task.y_step = args.y_stride[loop];
  task.z_step = kAcross ? 0 : args.z_stride[loop];
  task.bits_step = kAcross ? 0 : args.saved_stride[loop];
  task.count = LoopsFrom<kAcross>(args.shares, at);
  return task;
}

template <class Restorer, bool kAcross>
OOC_HOST_DEVICE void RestoreAll(const RestoreKernelArgs& args, unsigned number) {
  const RestoreTask task = RestoreTaskAt<kAcross>(args, number);
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

template <class Stored, bool kAcross>
OOC_HOST_DEVICE void RestoreStored(const RestoreKernelArgs& args, unsigned number) {
  switch (args.kind) {
    case kRestoreEach:
      return RestoreAll<RestoreKnown<Stored, kNoPool, 1, 1, kAcross>, kAcross>(args, number);
    case kRestoreMax2:
      return RestoreAll<RestoreKnown<Stored, kMaxPool, 2, 2, kAcross>, kAcross>(args, number);
    case kRestoreMax3:
      return RestoreAll<RestoreKnown<Stored, kMaxPool, 3, 2, kAcross>, kAcross>(args, number);
    default:
      return RestoreAll<RestoreKnown<Stored, kAveragePool, 2, 2, kAcross>, kAcross>(args, number);
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
