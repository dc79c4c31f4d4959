#include "library/shelves.hpp"

#include <new>
#include <utility>

#include "base/config.hpp"

namespace oocdnn {

bool Shelves::Have(const Bytes& bytes) const {
  if (shelves_.size() < bytes.size()) return false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (shelves_[i].bytes < bytes[i]) return false;
  }
  return true;
}

Status Shelves::Reserve(const Bytes& bytes, Slabs* slabs) {
  while (shelves_.size() < bytes.size()) shelves_.emplace_back();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (shelves_[i].bytes < bytes[i]) OOC_TRY(Grow(&shelves_[i], bytes[i], slabs));
  }
  return {};
}

void Shelves::Release(Slabs* slabs) {
  shelves_.clear();
  slabs->Limit(cap_);
}

Status Shelves::Grow(Shelf* shelf, int64_t bytes, Slabs* slabs) {
  *shelf = {};
  if (bytes <= cap_ / 2 - PinnedBytes()) {
    slabs->Limit(cap_ - PinnedBytes() - bytes);
    Result<std::unique_ptr<HostMemory>> pinned = HostMemory::Allocate(device_, bytes);
    if (pinned.ok()) shelf->pinned = std::move(pinned).value();
  }
  if (shelf->pinned == nullptr) {
    shelf->plain.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
  }
  const bool made = shelf->data() != nullptr;
  shelf->bytes = made ? bytes : 0;
  slabs->Limit(cap_ - PinnedBytes());
  if (made) return {};
  return Error(Code::kOutOfMemory, "no host memory for the %s between two sections of a chain",
               BytesText(bytes).c_str());
}

int64_t Shelves::PinnedBytes() const {
  int64_t bytes = 0;
  for (const Shelf& shelf : shelves_) {
    if (shelf.pinned != nullptr) bytes += shelf.bytes;
  }
  return bytes;
}

}  // namespace oocdnn
