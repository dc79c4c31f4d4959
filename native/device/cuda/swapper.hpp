// Copies of a training step between a GPU and page-locked host memory.
#pragma once

#include <memory>

#include "swap/swapper.hpp"

namespace oocdnn::cuda {

// kUnsupported where there is no such GPU.
Result<std::unique_ptr<swap::Swapper>> MakeSwapper(int ordinal);

}  // namespace oocdnn::cuda
