// Location: where a tensor is.
#pragma once

#include <cstdint>

namespace oocdnn {

// Tests use the numbers of the first five.
enum class Tier : uint8_t {
  kUnknown = 0,   // not said, or not looked at
  kPageable = 1,  // host memory that the device does not reach
  kPinned = 2,    // host memory that the device reaches: pinned, or any if the device is the host
  kDevice = 3,    // memory of the device
  kFile = 4,
  kPeer = 5,  // memory of another device
  kTile = 6,  // memory that a plan has booked for tiles
};

// True for memory that the device's copies reach without help of the host.
constexpr bool IsReached(Tier tier) {
  return tier == Tier::kPinned || tier == Tier::kDevice || tier == Tier::kPeer;
}

struct Location {
  Tier tier = Tier::kUnknown;
  int device = -1;     // kDevice and kPeer: the ordinal; -1: the device that copies
  int fd = -1;         // kFile: the file
  int64_t offset = 0;  // kFile: bytes before element (0, ..., 0)
  int64_t shift = 0;   // bytes that the device adds to an address of the memory to reach it

  bool operator==(const Location&) const = default;
};

}  // namespace oocdnn
