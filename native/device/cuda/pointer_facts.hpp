// What the driver knows of an address.
#pragma once

#include "base/location.hpp"
#include "device/cuda/driver.hpp"

namespace oocdnn::cuda {

struct PointerFacts {
  unsigned type = 0, managed = 0;  // type 0: nothing is known, so it is ordinary host memory
  int ordinal = -1;
  CUdeviceptr device = 0;  // the address that GPUs use for it
  CUdeviceptr begin = 0;   // of the allocation, or of what was registered at once
  size_t bytes = 0;        // of that; 0 where the driver does not say

  [[nodiscard]] bool known() const { return type != 0; }
  // Managed memory counts as the host's: it may be there.
  [[nodiscard]] bool host() const { return type == CU_MEMORYTYPE_HOST || managed != 0; }
};

// The location of memory at this address for the GPU of that ordinal.
Location LocationOf(const PointerFacts& facts, uint64_t address, int ordinal);

// Of the first of so many bytes, at least one; nothing is known where it is not known of all of
// them. A context must be current.
Result<PointerFacts> FactsOf(const Driver& driver, uint64_t address, uint64_t count);

}  // namespace oocdnn::cuda
