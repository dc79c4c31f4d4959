// C function for what is measured of a device and kept, for the tests in Python.
#include <string>

#include "calibrate/calibrate.hpp"
#include "testing/device_spec.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn::testing {
namespace {

constexpr int64_t kBudget = int64_t{1} << 20;

Status Refine(MachineProfile& machine, const Problem& problem) {
  const PlanRequest request = RequestOf(problem, kBudget, "direct");
  OOC_ASSIGN(const PlanSearch search, Search(WithoutBounce(request), machine.For(problem)));
  return machine.Refine(request, search.ranked.front().candidate, {1.0}).status();
}

Status Do(const std::string& what, const Problem& problem, int steps, MachineProfile& machine) {
  if (what == "refine") return Refine(machine, problem);
  if (what == "calibrate") {
    return machine.Complete({}, [&](int64_t, int64_t) { return --steps != 0; });
  }
  machine.For(problem);
  return {};
}

}  // namespace

// Opens the profile of the device (see device_spec.hpp) that is kept in the file, and does one
// thing with it: "plan" measures for the problem, "refine" too and refines it, "calibrate" ends
// after so many steps, or with the last. Waits for no other process.
OOC_EXPORT int oocdnn_testing_machine_profile(const char* device_spec, const char* file,
                                              const char* what, const Problem* problem, int steps,
                                              char* message, int64_t capacity) {
  const auto made = MakeDevice(device_spec);
  if (!made.ok()) return Answer(made.status(), message, capacity);
  MachineProfile machine(*made.value().device, file, kBudget, 0, {});
  return Answer(Do(what, *problem, steps, machine), message, capacity);
}

}  // namespace oocdnn::testing
