// Arguments of the normalisation kernels ooc_normalize and ooc_sum (kernels.cu).
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct NormPlan {
  NormKernelArgs args{};
  LaunchShape shape;  // no blocks: nothing to do
};

// Arithmetic only. kUnsupported for layouts that are not plain.
Result<NormPlan> PlanNorm(const NormArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
