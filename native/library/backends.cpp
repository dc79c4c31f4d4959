#include "library/backends.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/config.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

constexpr std::array<const char*, kFaultKinds> kFaultNames{
    "allocate", "allocate_host", "create", "copy", "run", "event", "prepare"};

Result<Fault> ParseFault(const std::vector<std::string>& words) {
  Fault fault;
  const auto* kind = words.size() < 3 ? kFaultNames.end()
                                      : std::find(kFaultNames.begin(), kFaultNames.end(), words[1]);
  if (kind == kFaultNames.end()) {
    return Error(Code::kInvalidProblem,
                 "a fault is written fault:KIND:N[:sticky] with KIND one of allocate, "
                 "allocate_host, create, copy, run, event, prepare");
  }
  fault.kind = static_cast<FaultKind>(kind - kFaultNames.begin());
  fault.nth = std::strtoll(words[2].c_str(), nullptr, 10);
  fault.sticky = words.size() > 3 && words[3] == "sticky";
  return fault;
}

Status Wrap(const std::string& wrapper, DeviceStack* stack) {
  const std::vector<std::string> words = Split(wrapper, ':');
  if (words[0] == "check") {
    stack->device = MakeCheckDevice(std::move(stack->device));
    stack->check = stack->device.get();
  } else if (words[0] == "trace") {
    stack->device = MakeTraceDevice(std::move(stack->device));
    stack->trace = stack->device.get();
  } else if (words[0] == "limit" && words.size() == 2) {
    OOC_ASSIGN(const int64_t bytes, ParseBytes(words[1]));
    stack->device = MakeLimitDevice(std::move(stack->device), bytes);
  } else if (words[0] == "fault") {
    OOC_ASSIGN(const Fault fault, ParseFault(words));
    stack->device = MakeFaultDevice(std::move(stack->device), fault);
  } else {
    return Error(
        Code::kInvalidProblem,
        "'%s' is not a wrapper; known are check, trace, limit:BYTES, fault:KIND:N[:sticky]",
        wrapper.c_str());
  }
  return {};
}

CpuOptions CpuOptionsOf(const DeviceOptions& options) {
  CpuOptions cpu;
  cpu.threads = options.threads;
  cpu.engine = options.engine;
  cpu.link_gb_per_s = options.link_gb_per_s;
  return cpu;
}

}  // namespace

Result<DeviceStack> MakeDevice(const DeviceOptions& options) {
  DeviceStack stack;
  if (options.device != "auto" && options.device != "cpu") {
    return Error(Code::kUnsupported,
                 "device '%s' is not available in this build; use \"cpu\" or \"auto\"",
                 options.device.c_str());
  }
  OOC_ASSIGN(stack.device, MakeCpuDevice(CpuOptionsOf(options)));
  stack.base = stack.device.get();
  for (const std::string& wrapper : Split(options.wrap, ',')) {
    OOC_TRY(Wrap(wrapper, &stack));
  }
  return stack;
}

std::vector<BackendReport> ReportBackends() {
  std::vector<BackendReport> reports;
  Result<std::unique_ptr<Device>> cpu = MakeCpuDevice({});
  if (cpu.ok()) {
    reports.push_back({"cpu", true, cpu.value()->capabilities().description, ""});
  } else {
    reports.push_back({"cpu", false, cpu.status().message(), ""});
  }
  reports.push_back({"cuda", false, "this build has no CUDA device", ""});
  return reports;
}

}  // namespace oocdnn
