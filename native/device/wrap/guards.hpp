// Guards: buffers of the wrapped device with known bytes on both sides and poison inside.
//
// A buffer starts as bytes 0xff, which is a NaN in every element type. The guard bytes are looked
// at when the buffer is freed. Everything here waits for its own work on a stream of its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

class Guards {
 public:
  explicit Guards(Device& device);
  ~Guards();
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

  // Bytes that a buffer costs beyond those asked for.
  [[nodiscard]] int64_t overhead() const { return 2 * guard_bytes_; }

  Result<void*> Allocate(int64_t bytes);
  // A sentence per violation. A buffer that is not known is not handed on to the device.
  void Free(void* buffer, int64_t bytes, std::vector<std::string>* reports);

  // Whether [begin, end) lies partly inside and partly outside a buffer. Memory that is no buffer
  // of ours may be the caller's, and is let pass.
  [[nodiscard]] bool Straddles(uintptr_t begin, uintptr_t end) const;
  // Whether the address lies in a buffer.
  [[nodiscard]] bool Holds(uintptr_t address) const;
  // The bytes of each buffer that is not freed yet.
  [[nodiscard]] std::vector<int64_t> Live() const;

 private:
  Status Prepare();
  Status FillAll(char* whole, int64_t bytes);
  Status CheckSide(const char* side, const void* guard, int64_t bytes,
                   std::vector<std::string>* reports);

  Device& device_;
  const int64_t guard_bytes_;
  Stream stream_ = nullptr;
  void* host_ = nullptr;  // a copy of one guard
  std::map<uintptr_t, int64_t> live_;
};

}  // namespace oocdnn
