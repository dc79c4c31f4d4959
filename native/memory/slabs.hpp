// Slabs: staging memory of exact sizes between pageable memory or files and the device.
//
// One block of host memory holds the slabs of a call. It grows on demand up to the cap and never
// shrinks by itself, so that after warm-up no call allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

class Slabs {
 public:
  Slabs(Device& device, int64_t cap) : device_(device), cap_(cap) {}
  ~Slabs() { Release(); }
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Slabs with the given sizes, valid until the next Reserve or Release; nothing may be using the
  // old ones. kOutOfMemory names the cap.
  Status Reserve(const std::vector<int64_t>& sizes);
  [[nodiscard]] void* At(size_t index) const { return static_cast<char*>(block_) + at_[index]; }
  // Of all slabs.
  [[nodiscard]] const Location& location() const { return location_; }
  void Release();
  // Another cap; slabs that pass it are released, and nothing may be using them.
  void Limit(int64_t cap) {
    cap_ = cap;
    if (bytes_ > cap_) Release();
  }
  // What slabs of these sizes take together.
  static int64_t BytesOf(const std::vector<int64_t>& sizes);
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t cap() const { return cap_; }

 private:
  Device& device_;
  int64_t cap_, bytes_ = 0;
  void* block_ = nullptr;
  Location location_;
  std::vector<int64_t> at_;  // where each begins, and the last ends
};

}  // namespace oocdnn
