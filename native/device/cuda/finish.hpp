// The pass over a finished sum, as arguments of ooc_finish.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct FinishPlan {
  FinishKernelArgs args{};
  LaunchShape shape;  // no blocks: nothing to do
};

// Arithmetic only. kUnsupported for layouts that are not plain.
Result<FinishPlan> PlanFinish(const FinishArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
