// A candidate in words.
#pragma once

#include <string>

#include "model/plan.hpp"

namespace oocdnn {

// "H 224 in 9 of 25, K 64 in 2 of 32", or "whole".
std::string TileText(const Tiling& tiling);

}  // namespace oocdnn
