// The CUDA driver, opened at run time: a table of its functions, and what its errors mean.
#pragma once

#include <cstdint>
#include <string>

#include "abi/cuda_driver.h"
#include "base/status.hpp"

namespace oocdnn::cuda {

// The functions under their names without suffix: driver.cuMemAlloc(...).
struct Driver {
#define OOC_MEMBER(name, symbol, parameters) CUresult(*name) parameters = nullptr;
  OOC_CUDA_DRIVER_FUNCTIONS(OOC_MEMBER)
#undef OOC_MEMBER
  int version = 0;  // 1000 * major + 10 * minor of the CUDA version that the driver supports

  // Ok, or an error that says what was being done ("cuMemAlloc of 12 B") and what the driver's
  // answer means: kOutOfMemory where memory ran out, kUnsupported where there is no GPU or no real
  // driver, else kDeviceError.
  [[nodiscard]] Status Check(CUresult result, const char* what) const;
  // Which one it is, for people: "580.65.06 for CUDA 13.0", or "for CUDA 13.0" where the system
  // does not tell more.
  [[nodiscard]] std::string Text() const;
};

// The initialised driver of this process; opened once, never closed. kUnsupported with the remedy
// where there is none, or one that is too old; kDeviceError where it does not start.
Result<const Driver*> LoadDriver();

inline CUdeviceptr Address(const void* pointer) {
  return static_cast<CUdeviceptr>(reinterpret_cast<size_t>(pointer));
}

inline void* PointerTo(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace oocdnn::cuda

// Returns from the enclosing function when the driver's answer is not success. `driver` is a
// Driver, `call` a call of one of its members without its name: OOC_CUDA(driver, cuInit, 0).
#define OOC_CUDA(driver, function, ...) \
  OOC_TRY((driver).Check((driver).function(__VA_ARGS__), #function))
