// The conformance suite: what every Device promises, as named cases. One suite for all devices.
//
// A case returns ok, kUnsupported with the reason where the device cannot be asked, or an error
// that says what was seen and what was promised. The lists of what is unsupported or known to fail
// on which device are with the test that runs the suite.
#pragma once

#include <span>

#include "device/device.hpp"

namespace oocdnn::testing {

struct Case {
  const char* name;
  Status (*run)(Device& device);
};

// One group per source file; AllCases() of conformance.cpp joins them.
std::span<const Case> MemoryCases();
std::span<const Case> StreamCases();
std::span<const Case> ErrorCases();
std::span<const Case> CopyCases();
std::span<const Case> MoveCases();
std::span<const Case> EngineCases();
std::span<const Case> PropertyCases();
std::span<const Case> FinishCases();
std::span<const Case> MakeCases();
std::span<const Case> EpilogueCases();
std::span<const Case> RestoreCases();
std::span<const Case> NormCases();

}  // namespace oocdnn::testing

// Ends the case with a failure that says what was promised and seen.
#define OOC_EXPECT(condition, ...)                                    \
  do {                                                                \
    if (const bool ooc_holds_ = (condition); !ooc_holds_)             \
      return ::oocdnn::Error(::oocdnn::Code::kInternal, __VA_ARGS__); \
  } while (false)
