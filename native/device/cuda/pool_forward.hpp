// Arguments of ooc_pool_forward, from the outputs of the finishing pass.
#pragma once

#include <optional>
#include <vector>

#include "device/cuda/copy_plan.hpp"
#include "device/cuda/dense.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct PoolForwardPlan {
  PoolForwardKernelArgs args{};
  LaunchShape shape;
  // To be launched instead, if there is one.
  std::optional<DensePlan> dense;
  std::optional<StridedCopy> copy;
};

// One launch; or two, of which the first finishes in place: where bits of y are saved and y is
// averaged, and where z is y in another memory order. Arithmetic only. kUnsupported for layouts
// that are not plain.
Result<std::vector<PoolForwardPlan>> PlanPoolForward(const FinishArgs& args, int multiprocessors);
// Finishing in place, where ooc_dense can.
std::optional<DensePlan> PlanDenseFinish(const FinishArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
