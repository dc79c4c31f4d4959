// Devices and the tile loop, through the functions of the testing library: every conformance case
// and random plans, on devices of several threads at once.
#include <cstdint>
#include <iterator>
#include <string>

#include "testing/exercise/exercise.hpp"

extern "C" {
int oocdnn_testing_conformance_count();
const char* oocdnn_testing_conformance_name(int index);
int oocdnn_testing_conformance_run(const char* device, int index, char* message, int64_t capacity);
int oocdnn_testing_device(const char* device, char* message, int64_t capacity);
int oocdnn_testing_schedules(const char* device, uint64_t seed, int64_t count, int64_t* mismatches,
                             int64_t* steps, int64_t* hazards, char* message, int64_t capacity);
}

namespace oocdnn::exercise {
namespace {

constexpr int kOk = 0, kUnsupported = 4;  // codes of a Status
constexpr int64_t kMessageBytes = 4096;
constexpr int kPlans = 200;

constexpr const char* kConformanceDevices[] = {"cpu:direct,threads=4", "cpu:onednn,threads=1",
                                               "check(trace(cpu:direct,threads=2,jitter=3))"};
constexpr const char* kScheduleDevices[] = {"cpu:direct,threads=2", "cpu:reference,threads=2",
                                            "check(cpu:direct,threads=1)",
                                            "trace(cpu:direct,threads=1)"};

// What a device is known not to do is listed where pytest runs the suite; here it may refuse.
void Conform(const char* device, int index) {
  char message[kMessageBytes] = "";
  const int code = oocdnn_testing_conformance_run(device, index, message, kMessageBytes);
  if (code == kOk || code == kUnsupported) return;
  Fail("%s %s: %s", device, oocdnn_testing_conformance_name(index), message);
}

void Schedule(const char* device, uint64_t seed, int count) {
  char message[kMessageBytes] = "";
  int64_t mismatches = 0, steps = 0, hazards = 0;
  const int code = oocdnn_testing_schedules(device, seed, count, &mismatches, &steps, &hazards,
                                            message, kMessageBytes);
  if (code == kOk && mismatches == 0 && hazards == 0) return;
  Fail("%s seed %llu: %s", device, static_cast<unsigned long long>(seed), message);
}

}  // namespace

void Conformance() {
  char message[kMessageBytes] = "";
  for (const char* device : kConformanceDevices) {
    if (oocdnn_testing_device(device, message, kMessageBytes) != kOk) continue;
    OnThreads([&](int number) {
      const int cases = oocdnn_testing_conformance_count();
      for (int i = number; i < cases; i += kThreads) Conform(device, i);
    });
  }
}

void Schedules() {
  OnThreads([](int number) {
    const auto seed = static_cast<uint64_t>(number);
    Schedule(kScheduleDevices[seed % std::size(kScheduleDevices)], seed, kPlans);
    const std::string delayed = "check(cpu:direct,threads=2,jitter=" + std::to_string(seed + 1);
    Schedule((delayed + ")").c_str(), 100 + seed, kPlans / 20);
  });
}

}  // namespace oocdnn::exercise
