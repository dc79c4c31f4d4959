// A C function for divided batches, on a device that says how long parts take and with what
// workspace.
#include <algorithm>
#include <cmath>

#include "device/wrap/forwarding.hpp"
#include "model/text/plan_text.hpp"
#include "planner/in_place.hpp"
#include "testing/export.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {
namespace {

// Nanoseconds of a run and of each sample in it, of an engine that has its workspace and of one
// without; and the bytes that the former wants for each sample.
struct Speeds {
  int64_t run, hungry, frugal, bytes;
};

class HungryExecutable final : public Executable {
 public:
  HungryExecutable(const Executable& inner, int64_t nanoseconds, int64_t workspace)
      : nanoseconds(nanoseconds) {
    engine_ = workspace > 0 ? "hungry" : "frugal";
    properties_ = inner.properties();
    workspace_bytes_ = workspace;
    for (int i = 0; i < kOperands; ++i) layout_[i] = inner.layout(static_cast<Operand>(i));
  }
  const int64_t nanoseconds;
};

class HungryDevice final : public ForwardingDevice {
 public:
  // `speeds`: the members of Speeds in turn.
  explicit HungryDevice(const int64_t speeds[4])
      : ForwardingDevice(MakeNullDevice(int64_t{1} << 30)),
        speeds_{speeds[0], speeds[1], speeds[2], speeds[3]} {}

  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override {
    OOC_ASSIGN(const std::unique_ptr<Executable> plain, inner().Prepare(engine, op));
    const int64_t wanted = op.shape.n * speeds_.bytes;
    const bool has = wanted <= op.workspace_limit;
    if (!has && op.first_choice) return Error(Code::kOutOfMemory, "hungry").WithDetail(wanted);
    const int64_t samples = op.shape.n * (has ? speeds_.hungry : speeds_.frugal);
    return std::unique_ptr<Executable>(std::make_unique<HungryExecutable>(
        *plain, speeds_.run + samples, has ? wanted : int64_t{0}));
  }

  Status Run(Stream, Executable& executable, const RunArgs& args) override {
    const int64_t length = static_cast<HungryExecutable&>(executable).nanoseconds;
    if (args.tag.span != nullptr) *args.tag.span = {1, 1 + length};
    return {};
  }

 private:
  const Speeds speeds_;
};

PlanRequest RequestOn(const Device& device, const Problem& problem, const int64_t limits[2]) {
  PlanRequest request;
  request.problem = problem;
  request.budget = limits[0];
  request.workspace = limits[1];
  request.engines = device.engines();
  for (int i = 0; i < kOperands; ++i) {
    if (!problem.Has(static_cast<Operand>(i))) continue;
    request.tiers[i] = Tier::kDevice;
    request.in_place[i] = true;
  }
  return request;
}

}  // namespace

// Operands lie on the device. `limits`: the budget and that of workspace. `batch`: 1 where it may
// be divided, and 2 where runs are timed.
//
// Gives the plan with its engine as text, the seconds that it is predicted to take, and as counts
// the bytes that it books and how many plans were prepared; or why there is none.
OOC_EXPORT int oocdnn_testing_divided_plan(const Problem* problem, const int64_t limits[2],
                                           const char* profile_text, const int64_t speeds[4],
                                           int batch, double* seconds, int64_t counts[2],
                                           char* text, int64_t capacity) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  HungryDevice device(speeds);
  const PlanRequest request = RequestOn(device, *problem, limits);
  int64_t prepared = 0;
  const Result<PlanReport> report =
      PlanInPlace(device, request, profile.value(),
                  Batch{.divided = (batch & 1) != 0, .timed = (batch & 2) != 0}, &prepared);
  if (!report.ok()) return Answer(report.status(), text, capacity);
  const Booking& booking = report.value().booking;
  *seconds = report.value().cost.seconds;
  counts[0] = booking.bytes;
  counts[1] = prepared;
  CopyText(booking.usual.executable().engine() + ": " + ToText(request, booking.candidate), text,
           capacity);
  return 0;
}

// The ways that MeasureParts finds by the policy limits[2], as many as there is room for: samples,
// nanoseconds, bytes each. `count` is the room, and becomes how many there are.
OOC_EXPORT int oocdnn_testing_measured_parts(const Problem* problem, const int64_t limits[3],
                                             const char* profile_text, const int64_t speeds[4],
                                             int64_t* ways, int64_t* count, char* text,
                                             int64_t capacity) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  HungryDevice device(speeds);
  const PlanRequest request = RequestOn(device, *problem, limits);
  int64_t prepared = 0;
  const Result<std::vector<MicroBatch>> parts = MeasureParts(
      device, request, profile.value(), static_cast<BatchPolicy>(limits[2]), &prepared);
  if (!parts.ok()) return Answer(parts.status(), text, capacity);
  const int64_t room = *count;
  *count = static_cast<int64_t>(parts.value().size());
  for (int64_t i = 0; i < std::min(room, *count); ++i) {
    const MicroBatch& part = parts.value()[static_cast<size_t>(i)];
    ways[3 * i] = part.samples;
    ways[3 * i + 1] = std::llround(part.seconds * 1e9);
    ways[3 * i + 2] = part.workspace_bytes;
  }
  return 0;
}

}  // namespace oocdnn::testing
