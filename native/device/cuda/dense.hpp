// Finishing passes of dense tiles, as arguments of ooc_dense or ooc_planes.
#pragma once

#include <optional>

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct DensePlan {
  Kernel kernel = Kernel::kDense;
  DenseArgs args{};
  LaunchShape shape;
};

// What `make` would do, of tiles laid out so (`saved` is null where nothing is); nothing where it
// is not such work as these kernels do. Arithmetic only.
std::optional<DensePlan> PlanDense(const PoolForwardKernelArgs& make, const TileLayout& y,
                                   const TileLayout& z, const TileLayout* saved,
                                   int multiprocessors);

}  // namespace oocdnn::cuda
