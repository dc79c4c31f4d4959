#include "backends/backends.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/config.hpp"
#include "base/host.hpp"
#include "base/log.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/swapper.hpp"
#include "device/wrap/wrap.hpp"
#include "geom/words.hpp"

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

Status Wrap(const std::string& wrapper, std::unique_ptr<Device>* device, DeviceStack* stack) {
  const std::vector<std::string> words = Split(wrapper, ':');
  const std::string name = words.empty() ? "" : words[0];
  if (name == "check") {
    *device = MakeCheckDevice(std::move(*device));
    stack->check = device->get();
  } else if (name == "trace") {
    *device = MakeTraceDevice(std::move(*device));
    stack->trace = device->get();
  } else if (name == "limit" && words.size() == 2) {
    OOC_ASSIGN(const int64_t bytes, ParseBytes(words[1]));
    *device = MakeLimitDevice(std::move(*device), bytes);
  } else if (name == "resident" && (*device)->capabilities().shares_host_memory) {
    *device = MakeResidentDevice(std::move(*device));
  } else if (name == "fault") {
    OOC_ASSIGN(const Fault fault, ParseFault(words));
    *device = MakeFaultDevice(std::move(*device), fault);
  } else {
    return Error(
        Code::kInvalidProblem,
        "'%s' is not a wrapper; known are check, trace, limit:BYTES, fault:KIND:N[:sticky], and on "
        "the CPU device resident",
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

CudaOptions CudaOptionsOf(const DeviceOptions& options, int ordinal) {
  CudaOptions cuda;
  cuda.ordinal = ordinal;
  cuda.engine = options.engine;
  cuda.cudnn_path = options.cudnn_path;
  cuda.nvrtc_path = options.nvrtc_path;
  cuda.cache_folder = options.cache_folder;
  cuda.borrowed = options.borrowed;
  return cuda;
}

Result<std::unique_ptr<Device>> MakeAuto(const DeviceOptions& options) {
  Result<std::unique_ptr<Device>> cuda = MakeCudaDevice(CudaOptionsOf(options, 0));
  if (cuda.ok() || options.borrowed.needed) return cuda;  // a caller that borrows expects a GPU
  const bool broken = cuda.status().code() != Code::kUnsupported;
  Log(broken ? LogLevel::kWarn : LogLevel::kInfo, "the CPU computes: %s",
      cuda.status().message().c_str());
  return MakeCpuDevice(CpuOptionsOf(options));
}

bool IsCuda(const std::string& device) { return device == "cuda" || device.starts_with("cuda:"); }

constexpr const char* kCpuLink = "cpu:link=";

Result<std::unique_ptr<Device>> MakeBase(const DeviceOptions& options) {
  const std::string& device = options.device;
  if (device == "auto") return MakeAuto(options);
  if (device.starts_with("cpu") && options.borrowed.needed) {
    return Error(Code::kInvalidProblem,
                 "device '%s' borrows no links of GPUs; GPUs do, as \"cuda:0\"", device.c_str());
  }
  if (device == "cpu") return MakeCpuDevice(CpuOptionsOf(options));
  if (device.starts_with(kCpuLink)) {
    DeviceOptions linked = options;
    const std::string_view number = std::string_view(device).substr(std::strlen(kCpuLink));
    if (ReadNumber(number, &linked.link_gb_per_s) && linked.link_gb_per_s > 0.0) {
      return MakeCpuDevice(CpuOptionsOf(linked));
    }
    return Error(Code::kInvalidProblem, "device '%s': write \"cpu:link=N\" with N GB/s, above 0",
                 device.c_str());
  }
  if (IsCuda(device)) {
    OOC_ASSIGN(const int ordinal, OrdinalOf(device));
    Result<std::unique_ptr<Device>> made = MakeCudaDevice(CudaOptionsOf(options, ordinal));
    if (!made.ok()) return std::move(made).status().With(device);
    return made;
  }
  return Error(Code::kUnsupported, "there is no device '%s'; use \"auto\", \"cpu\" or \"cuda:N\"",
               device.c_str());
}

Component ReportOf(const char* name, const Result<std::unique_ptr<Device>>& device) {
  if (!device.ok()) return {name, false, device.status().message(), ""};
  return {name, true, device.value()->capabilities().description, ""};
}

}  // namespace

Result<std::vector<std::string>> DevicesOf(const std::string& text) {
  std::vector<std::string> devices = Split(text, ',');
  const auto commas = static_cast<size_t>(std::count(text.begin(), text.end(), ','));
  if (commas > 0 && devices.size() != commas + 1) {
    return Error(Code::kInvalidProblem,
                 "devices '%s': write names with a comma between two of them, as in "
                 "\"cuda:0,cuda:1\"",
                 text.c_str());
  }
  if (devices.empty()) devices.push_back(text);
  return devices;
}

Result<DeviceStack> MakeDevice(const DeviceOptions& options) {
  DeviceStack stack;
  OOC_ASSIGN(std::unique_ptr<Device> device, MakeBase(options));
  stack.base = device.get();
  for (const std::string& wrapper : Split(options.wrap, ',')) {
    OOC_TRY(Wrap(wrapper, &device, &stack));
  }
  stack.device = std::move(device);
  return stack;
}

Result<int> OrdinalOf(const std::string& device) {
  if (device == "cuda") return 0;
  int ordinal = 0;
  if (IsCuda(device) &&
      ReadNumber(std::string_view(device).substr(std::strlen("cuda:")), &ordinal) && ordinal >= 0) {
    return ordinal;
  }
  return Error(Code::kInvalidProblem, "device '%s': write \"cuda:0\", \"cuda:1\", ...",
               device.c_str());
}

int CountPeers(const Device& device) {
  return IsCuda(device.capabilities().name) ? std::max(CountCudaDevices() - 1, 0) : 0;
}

// Its own kernels are made sooner than cuDNN is opened.
Result<std::unique_ptr<Device>> MakePeer(const Device& device, const DeviceOptions& options,
                                         int number) {
  OOC_ASSIGN(const int own, OrdinalOf(device.capabilities().name));
  const int ordinal = number < own ? number : number + 1;
  CudaOptions cuda = CudaOptionsOf(options, ordinal);
  cuda.engine = "direct";
  cuda.borrowed = {};
  Result<std::unique_ptr<Device>> made = MakeCudaDevice(cuda);
  if (!made.ok()) return std::move(made).status().With(Format("cuda:%d", ordinal));
  return made;
}

Result<std::unique_ptr<swap::Swapper>> MakeSwapper(int ordinal) {
  return cuda::MakeSwapper(ordinal);
}

int64_t StagingBytes(const Device& device) {
  return device.capabilities().reads_host ? kLeastStaging
                                          : std::max(kLeastStaging, AvailableMemory() / 4);
}

int64_t BounceBytes(const EngineInfo& engine) {
  return engine.name.starts_with("cudnn") ? cuda::kBounceBytes : 0;
}

std::vector<Component> ReportBackends(const DeviceOptions& options) {
  DeviceOptions any = options;
  any.engine.clear();
  return {ReportOf("cpu", MakeCpuDevice(CpuOptionsOf(any))),
          ReportOf("cuda", MakeCudaDevice(CudaOptionsOf(any, 0)))};
}

}  // namespace oocdnn
