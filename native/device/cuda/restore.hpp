// A tile of dy from one of dz and saved bits, as arguments of ooc_restore.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct RestorePlan {
  RestoreKernelArgs args{};
  LaunchShape shape;  // no blocks: nothing to do
};

// Arithmetic only. kUnsupported for layouts that are not plain.
Result<RestorePlan> PlanRestore(const RestoreArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
