// Slabs: staging memory of exact sizes between pageable memory or files and the device.
//
// A slab belongs to one operand of one plan and is kept for the next call; the sum of all stays
// below the cap.
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

  // `count` slabs with the given sizes, valid until the next Reserve or Release. Slabs that are
  // large enough are reused. kOutOfMemory names the cap.
  Status Reserve(const std::vector<int64_t>& sizes);
  [[nodiscard]] void* At(size_t index) const { return slabs_[index].memory; }
  void Release();
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  struct Slab {
    void* memory = nullptr;
    int64_t bytes = 0;
  };
  Device& device_;
  int64_t cap_, bytes_ = 0;
  std::vector<Slab> slabs_;
};

}  // namespace oocdnn
