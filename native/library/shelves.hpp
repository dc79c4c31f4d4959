// Shelves: host memory in which sections of a chain leave their results for each other.
//
// It is pinned within half of the cap on what is pinned, of which slabs then have that much less;
// what is too large for that, or what the system does not pin, is ordinary memory. It grows on
// demand and stays until Release.
#pragma once

#include <memory>
#include <vector>

#include "memory/host_memory.hpp"
#include "memory/slabs.hpp"

namespace oocdnn {

class Shelves {
 public:
  // `cap`: of pinned bytes, for these and the slabs together.
  Shelves(std::shared_ptr<Device> device, int64_t cap) : device_(std::move(device)), cap_(cap) {}

  using Bytes = std::vector<int64_t>;  // by shelf
  [[nodiscard]] bool Have(const Bytes& bytes) const;
  // Has shelves of so many bytes at least; nothing may be using these, or the slabs. kOutOfMemory
  // where the system has no such memory.
  Status Reserve(const Bytes& bytes, Slabs* slabs);
  [[nodiscard]] void* At(size_t shelf) const { return shelves_[shelf].data(); }
  void Release(Slabs* slabs);

 private:
  struct Shelf {
    std::unique_ptr<HostMemory> pinned;
    std::unique_ptr<char[]> plain;
    int64_t bytes = 0;
    [[nodiscard]] void* data() const { return pinned != nullptr ? pinned->data() : plain.get(); }
  };
  Status Grow(Shelf* shelf, int64_t bytes, Slabs* slabs);
  [[nodiscard]] int64_t PinnedBytes() const;

  std::shared_ptr<Device> device_;
  const int64_t cap_;
  std::vector<Shelf> shelves_;
};

}  // namespace oocdnn
