// CallPins: operands in pageable memory that are pinned while a call runs.
//
// What one call pins is ordinary memory to all others of the process, which stage it: else it could
// be let go under their copies.
#pragma once

#include <vector>

#include "exec/staging.hpp"
#include "library/locate.hpp"

namespace oocdnn {

class CallPins {
 public:
  explicit CallPins(Device& device) : device_(device) {}
  // Nothing may be copying from or to what was pinned.
  ~CallPins();
  CallPins(const CallPins&) = delete;
  CallPins& operator=(const CallPins&) = delete;

  // Pins those of the operands that are in pageable memory, `most` bytes of them at most, and has
  // the tensors say so. The first reason why one cannot be, kUnsupported where another call has
  // pinned it; it stays as it was.
  Status Pin(const Problem& problem, const Pinned& which, int64_t most, OperandViews* tensors);

  // As Device::Locate, but memory that a call has pinned for itself is pageable.
  static Result<Location> Locate(Device& device, const AddressRange& range);

 private:
  struct Wanted {
    Operand operand;
    AddressRange range;
  };
  struct All;  // that calls of this process have pinned
  static All& OfProcess();
  static void Forget(const AddressRange& range);
  static std::vector<Wanted> WantedOf(const Problem& problem, const Pinned& which,
                                      const OperandViews& tensors);
  static std::vector<Wanted> Joined(std::vector<Wanted> wanted);
  Status PinOne(const AddressRange& range);

  Device& device_;
  std::vector<AddressRange> pinned_;
};

}  // namespace oocdnn
