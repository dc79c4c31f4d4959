// Devices around a device. Each owns the device that it wraps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

// A device that has only `bytes` of memory.
std::unique_ptr<Device> MakeLimitDevice(std::unique_ptr<Device> inner, int64_t bytes);

// A device whose n-th call of one kind fails (n from 1; sticky: and every later one).
enum class FaultKind : int {
  kAllocate = 0,
  kAllocateHost = 1,
  kCreate = 2,
  kCopy = 3,
  kRun = 4,
  kEvent = 5,
  kPrepare = 6,
};
constexpr int kFaultKinds = 7;
struct Fault {
  FaultKind kind = FaultKind::kAllocate;
  int64_t nth = 1;
  bool sticky = false;
};
std::unique_ptr<Device> MakeFaultDevice(std::unique_ptr<Device> inner, const Fault& fault);
// How many calls of `kind` the fault device has seen.
int64_t FaultCalls(const Device& fault_device, FaultKind kind);

// A device that checks its client: every pair of conflicting accesses to a byte range must be
// ordered by streams and events (vector clocks, at enqueue time); buffers start poisoned and carry
// guard bytes that are checked when freed; what the client never destroyed is reported.
std::unique_ptr<Device> MakeCheckDevice(std::unique_ptr<Device> inner);
// The violations seen so far, a sentence each.
std::vector<std::string> CheckReports(const Device& check_device);

// A device for which all host memory is its own, as it is: operands count as lying on the device,
// and calls end when they are done. Of a device that shares the host's memory, for tests.
std::unique_ptr<Device> MakeResidentDevice(std::unique_ptr<Device> inner);

// A device that records when each piece of work ran.
std::unique_ptr<Device> MakeTraceDevice(std::unique_ptr<Device> inner);
// What has been recorded so far as Chrome trace JSON (chrome://tracing, Perfetto), one track per
// stream and a counter of the bytes in device buffers; clears the record.
std::string TakeTrace(Device& trace_device);

}  // namespace oocdnn
