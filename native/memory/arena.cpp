#include "memory/arena.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/config.hpp"

namespace oocdnn {

int64_t Offsets::Book(int64_t bytes) {
  const int64_t offset = total_;
  total_ = Add(total_, RoundUp(std::max<int64_t>(bytes, 1), alignment_));
  return offset;
}

Status Arena::Reserve(int64_t bytes) {
  if (bytes <= bytes_) return {};
  if (lent_) {
    return Error(Code::kOutOfMemory, "%s of scratch memory were given, and %s are needed",
                 BytesText(bytes_).c_str(), BytesText(bytes).c_str());
  }
  Release();
  OOC_ASSIGN(block_, device_.Allocate(bytes));
  ++allocations_;
  bytes_ = bytes;
  peak_ = std::max(peak_, bytes_);
  return {};
}

void Arena::Release() {
  if (lent_) return;
  if (block_ != nullptr) device_.Free(block_, bytes_);
  block_ = nullptr;
  bytes_ = 0;
}

}  // namespace oocdnn
