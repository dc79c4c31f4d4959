// Conversion of runs of elements, with the processor's own half-precision instructions.
#pragma once

#include <cstring>

#include "device/cpu/convert.hpp"

namespace oocdnn::cpu {

void ConvertHalves(const Float16* from, float* to, int64_t count);
void ConvertHalves(const float* from, Float16* to, int64_t count);

template <class From, class To>
void ConvertRun(const From* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
  } else if constexpr ((std::is_same_v<From, Float16> && std::is_same_v<To, float>) ||
                       (std::is_same_v<From, float> && std::is_same_v<To, Float16>)) {
    ConvertHalves(from, to, count);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = Convert<To>(from[i]);
  }
}

}  // namespace oocdnn::cpu
