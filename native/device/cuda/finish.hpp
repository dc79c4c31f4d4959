// The pass over a finished sum, as arguments of ooc_finish.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct FinishPlan {
  FinishKernelArgs args{};
  LaunchShape shape;  // no blocks: nothing to do
};

// Whether finishing adds at most a bias and cuts values at limits, of FinishKernelArgs and of
// PoolForwardKernelArgs: for that there are kernels of their own. A limit of 0 is none, because it
// leaves zeros of either sign.
template <class Args>
bool OnlyCuts(const Args& args) {
  const auto activation = static_cast<Activation>(args.activation);
  const bool cuts = activation == Activation::kIdentity || activation == Activation::kRelu ||
                    (activation == Activation::kClippedRelu && args.parameter > 0.0);
  return cuts && args.alpha == 1.0 && args.scale == nullptr && args.residual == nullptr;
}

// Arithmetic only. kUnsupported for layouts that are not plain.
Result<FinishPlan> PlanFinish(const FinishArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
