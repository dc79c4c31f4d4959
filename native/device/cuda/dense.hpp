// Finishing passes of dense tiles, as arguments of ooc_dense.
#pragma once

#include <optional>

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct DensePlan {
  DenseArgs args{};
  LaunchShape shape;
};

// What `make` would do, of tiles laid out so (`saved` is null where nothing is); nothing where it
// is not such work as ooc_dense does. Arithmetic only.
std::optional<DensePlan> PlanDense(const MakeKernelArgs& make, const TileLayout& y,
                                   const TileLayout& z, const TileLayout* saved,
                                   int multiprocessors);

}  // namespace oocdnn::cuda
