// The table of cases, and the C functions through which pytest runs them one by one.
#include "testing/conformance.hpp"

#include <vector>

#include "device/wrap/check_device.hpp"
#include "testing/device_spec.hpp"
#include "testing/export.hpp"
#include "testing/lying_device.hpp"

namespace oocdnn::testing {
namespace {

const std::vector<Case>& AllCases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all;
    for (const std::span<const Case> group :
         {MemoryCases(), StreamCases(), ErrorCases(), CopyCases(), MoveCases(), EngineCases(),
          PropertyCases(), FinishCases(), MakeCases(), EpilogueCases(), RestoreCases(),
          NormCases()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }();
  return cases;
}

// The suite is a client too: on a check device it must not be found wanting.
Status CheckClient(const Device& check_device) {
  for (const std::string& sentence : CheckReports(check_device)) {
    return Error(Code::kInternal, "the check device reports: %s", sentence.c_str());
  }
  for (const std::string& sentence : CheckLeaks(check_device)) {
    return Error(Code::kInternal, "the check device reports: %s", sentence.c_str());
  }
  return {};
}

Status RunCase(const std::string& spec, const Case& which) {
  OOC_ASSIGN(SpecDevice made, MakeDevice(spec));
  OOC_TRY(which.run(*made.device));
  return made.check == nullptr ? Status() : CheckClient(*made.check);
}

}  // namespace
}  // namespace oocdnn::testing

using oocdnn::testing::AllCases;

OOC_EXPORT int oocdnn_testing_conformance_count() { return static_cast<int>(AllCases().size()); }

OOC_EXPORT const char* oocdnn_testing_conformance_name(int index) {
  return AllCases()[static_cast<size_t>(index)].name;
}

// Whether the device can be made: the code of the Status.
OOC_EXPORT int oocdnn_testing_device(const char* device_spec, char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::MakeDevice(device_spec).status(), message,
                                 capacity);
}

// The name of a lie, null behind the last one.
OOC_EXPORT const char* oocdnn_testing_lie_name(int index) {
  using oocdnn::testing::Lie;
  return index < oocdnn::testing::kLies ? oocdnn::testing::Name(static_cast<Lie>(index)) : nullptr;
}

// Runs one case on a new device; returns the code of its Status.
OOC_EXPORT int oocdnn_testing_conformance_run(const char* device_spec, int index, char* message,
                                              int64_t capacity) {
  const oocdnn::Status status =
      oocdnn::testing::RunCase(device_spec, AllCases()[static_cast<size_t>(index)]);
  return oocdnn::testing::Answer(status, message, capacity);
}
