// A device that breaks one promise of the contract, to show that the conformance suite notices.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"

namespace oocdnn::testing {

enum class Lie : int {
  kExact = 0,      // the first output is off by one bit
  kInvariant,      // the first output's last bits depend on the size of the tile
  kDeterministic,  // the first output's last bits depend on the number of runs so far
  kNanLocal,       // a NaN in the output spreads to one more element
  kAccumulate,     // Run overwrites where it should add
  kZeroFill,       // a fetch leaves what the box does not cover
  kSubRange,       // a fetch writes the whole tile where a part was asked for
  kLastElement,    // a drain misses the last element
  kMove,           // a move does nothing
  kFill,           // a fill stops one byte early
  kBias,           // the epilogue forgets the bias
  kOld,            // beta = 0 still reads the old output
  kWait,           // a stream does not wait for an event
  kRecord,         // an event is not recorded
  kError,          // errors of a stream's work are lost
  kErrorStays,     // an error comes back although it was reported
  kSpan,           // spans stay empty
  kBusy,           // a stream is never busy
  kAlignment,      // buffers are eight bytes off
  kLimitless,      // too large a request succeeds
  kReason,         // a refusal has no reason
  kLayout,         // a layout's dtype is not the one asked for
  kPart,           // a normalisation goes over the whole tile where a part was asked for
  kWritten,        // sums are of what the tile holds, before it is rounded
};
constexpr int kLies = static_cast<int>(Lie::kWritten) + 1;

const char* Name(Lie lie);

// Wraps a device that shares memory with the host.
std::unique_ptr<Device> MakeLyingDevice(std::unique_ptr<Device> inner, Lie lie);

}  // namespace oocdnn::testing
