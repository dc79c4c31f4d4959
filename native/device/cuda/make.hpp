// What the finishing pass makes beside the sum's own tile, as arguments of ooc_make.
#pragma once

#include <vector>

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct MakePlan {
  MakeKernelArgs args{};
  LaunchShape shape;
};

// One launch; two, one after the other, where bits of y are saved and y is averaged: then the first
// finishes in place. Arithmetic only. kUnsupported for layouts that are not plain.
Result<std::vector<MakePlan>> PlanMake(const FinishArgs& args, int multiprocessors);

}  // namespace oocdnn::cuda
