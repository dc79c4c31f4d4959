// Arguments of ooc_pool_forward, from the outputs of the finishing pass.
#pragma once

#include <optional>
#include <vector>

#include "device/cuda/dense.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct PoolForwardPlan {
  PoolForwardKernelArgs args{};
  LaunchShape shape;
  std::optional<DensePlan> dense;  // to be launched instead
};

// One launch; two, one after the other, where bits of y are saved and y is averaged: then the first
// finishes in place. Arithmetic only. kUnsupported for layouts that are not plain.
Result<std::vector<PoolForwardPlan>> PlanPoolForward(const FinishArgs& args, int multiprocessors);
// Finishing in place, where ooc_dense can.
std::optional<DensePlan> PlanDenseFinish(const FinishArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
