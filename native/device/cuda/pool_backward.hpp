// Arguments of ooc_pool_backward, from those of Device::PoolBackward.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct PoolBackwardPlan {
  PoolBackwardKernelArgs args{};
  LaunchShape shape;  // no blocks: nothing to do
};

// Arithmetic only. kUnsupported for layouts that are not plain.
Result<PoolBackwardPlan> PlanPoolBackward(const PoolBackwardArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
