// Arrays that come in as a pointer and a count.
#pragma once

#include <cstdint>
#include <span>

#include "capi/guard.hpp"

namespace oocdnn {

template <class T>
Result<std::span<const T>> ArrayOf(const T* array, int64_t count, const char* what) {
  OOC_TRY(NeedCount(count, what));
  if (count > 0) OOC_TRY(Need(array, what));
  return std::span<const T>(array, static_cast<size_t>(count));
}

}  // namespace oocdnn
