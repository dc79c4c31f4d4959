#include "memory/slabs.hpp"

#include "base/checked.hpp"
#include "base/config.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kPage = 4096;

// Where each begins, and the last ends.
std::vector<int64_t> PlacesOf(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> places{0};
  for (const int64_t bytes : sizes) places.push_back(Add(places.back(), RoundUp(bytes, kPage)));
  return places;
}

}  // namespace

int64_t Slabs::BytesOf(const std::vector<int64_t>& sizes) { return PlacesOf(sizes).back(); }

Status Slabs::Reserve(const std::vector<int64_t>& sizes) {
  at_ = PlacesOf(sizes);
  const int64_t total = at_.back();
  if (total <= bytes_) return {};
  if (total > cap_) {
    return Error(Code::kOutOfMemory,
                 "staging needs %s of host memory, %s are allowed; raise OOCDNN_PINNED_LIMIT or "
                 "lower the budget",
                 BytesText(total).c_str(), BytesText(cap_).c_str());
  }
  Release();
  OOC_ASSIGN(block_, device_.AllocateHost(total));
  bytes_ = total;
  OOC_ASSIGN(location_, device_.Locate(block_, total));
  return {};
}

void Slabs::Release() {
  if (block_ != nullptr) device_.FreeHost(block_, bytes_);
  block_ = nullptr;
  bytes_ = 0;
}

}  // namespace oocdnn
