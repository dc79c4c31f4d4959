// A C door to plans whose runs are timed, on a device that says how long they took.
#include "device/wrap/forwarding.hpp"
#include "library/timed_plans.hpp"
#include "testing/door.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {
namespace {

// Every run takes as long, whatever its tile.
class TimedDevice final : public ForwardingDevice {
 public:
  TimedDevice(std::unique_ptr<Device> inner, int64_t nanoseconds)
      : ForwardingDevice(std::move(inner)),
        capabilities_(this->inner().capabilities()),
        nanoseconds_(nanoseconds) {
    capabilities_.tries_engines = true;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Status Run(Stream, Executable&, const RunArgs& args) override {
    if (args.tag.span != nullptr) *args.tag.span = {1, 1 + nanoseconds_};
    return {};
  }

 private:
  Capabilities capabilities_;
  int64_t nanoseconds_;
};

}  // namespace

// The seconds that the chosen plan is predicted to take, and how many were prepared; text: why
// there is none, or the plan's.
OOC_DOOR int oocdnn_testing_timed_plan(const Problem* problem, int64_t budget,
                                       const char* profile_text, int64_t nanoseconds,
                                       double* seconds, int64_t* prepared, char* text,
                                       int64_t capacity) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  TimedDevice device(MakeNullDevice(int64_t{1} << 30), nanoseconds);
  PlanRequest request;
  request.problem = *problem;
  request.budget = budget;
  request.engines = device.engines();
  *prepared = 0;
  const Result<PlanReport> report = PlanAndTime(device, request, profile.value(), prepared);
  if (!report.ok()) return Answer(report.status(), text, capacity);
  *seconds = report.value().cost.seconds;
  CopyText(ToText(SummaryOf(report.value(), profile.value())), text, capacity);
  return 0;
}

}  // namespace oocdnn::testing
