#include "memory/slabs.hpp"

#include "base/config.hpp"

namespace oocdnn {

Status Slabs::Reserve(const std::vector<int64_t>& sizes) {
  bool fits = slabs_.size() >= sizes.size();
  int64_t total = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    fits = fits && slabs_[i].bytes >= sizes[i];
    total += sizes[i];
  }
  if (fits) return {};
  if (total > cap_) {
    return Error(Code::kOutOfMemory,
                 "staging needs %s of host memory, %s are allowed; raise OOCDNN_PINNED_LIMIT or "
                 "lower the budget",
                 BytesText(total).c_str(), BytesText(cap_).c_str());
  }
  Release();
  for (const int64_t bytes : sizes) {
    OOC_ASSIGN(void* memory, device_.AllocateHost(bytes));
    slabs_.push_back({memory, bytes});
    bytes_ += bytes;
  }
  return {};
}

void Slabs::Release() {
  for (const Slab& slab : slabs_) device_.FreeHost(slab.memory, slab.bytes);
  slabs_.clear();
  bytes_ = 0;
}

}  // namespace oocdnn
