// SectionBuffers: host memory for the results that one section of a chain passes to another.
//
// Buffers are pinned up to half of the cap on pinned memory, which leaves less of it to the slabs.
// Larger buffers, and those that the system does not pin, are pageable. Buffers grow on demand and
// stay allocated until Release.
#pragma once

#include <memory>
#include <vector>

#include "memory/host_memory.hpp"
#include "memory/slabs.hpp"

namespace oocdnn {

class SectionBuffers {
 public:
  // `cap`: the most pinned bytes, of these buffers and the slabs together.
  SectionBuffers(std::shared_ptr<Device> device, int64_t cap)
      : device_(std::move(device)), cap_(cap) {}

  using Bytes = std::vector<int64_t>;  // of each buffer
  [[nodiscard]] bool Have(const Bytes& bytes) const;
  // Grows the buffers to at least these sizes. Neither they nor the slabs may be in use.
  // kOutOfMemory where the system has too little memory.
  Status Reserve(const Bytes& bytes, Slabs* slabs);
  [[nodiscard]] void* At(size_t buffer) const { return buffers_[buffer].data(); }
  void Release(Slabs* slabs);

 private:
  struct Buffer {
    std::unique_ptr<HostMemory> pinned;
    std::unique_ptr<char[]> plain;
    int64_t bytes = 0;
    [[nodiscard]] void* data() const { return pinned != nullptr ? pinned->data() : plain.get(); }
  };
  Status Grow(Buffer* buffer, int64_t bytes, Slabs* slabs);
  [[nodiscard]] int64_t PinnedBytes() const;

  std::shared_ptr<Device> device_;
  const int64_t cap_;
  std::vector<Buffer> buffers_;
};

}  // namespace oocdnn
