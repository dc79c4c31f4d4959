// Linkage of the testing library's C functions, and conversion of a Status to a code and a text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/status.hpp"

#define OOC_EXPORT extern "C" __attribute__((visibility("default")))

namespace oocdnn::testing {

// Copies `text` to `to`, cut to `capacity` and always terminated.
inline void CopyText(const std::string& text, char* to, int64_t capacity) {
  if (capacity <= 0) return;
  const size_t length = std::min(text.size(), static_cast<size_t>(capacity - 1));
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

// The code of `status`, whose text goes to `message`.
inline int Answer(const Status& status, char* message, int64_t capacity) {
  CopyText(status.message(), message, capacity);
  return static_cast<int>(status.code());
}

}  // namespace oocdnn::testing
