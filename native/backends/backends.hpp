// The one file that names the back ends: from a device's name to a Device with its wrappers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/borrowed_gpus.hpp"
#include "device/device.hpp"
#include "swap/swapper.hpp"

namespace oocdnn {

struct DeviceOptions {
  // "auto", "cpu", "cuda", "cuda:N"; "cpu:link=N": the CPU behind a wire of N GB/s.
  std::string device = "auto";
  std::string engine;  // only this one; "": any
  std::string wrap;    // comma-separated, inner first: "limit:64MiB", "check", "trace",
                       // "fault:copy:3", "fault:run:1:sticky", "resident"
  int threads = 0;
  double link_gb_per_s = 0.0;
  std::string cudnn_path, nvrtc_path, cache_folder;  // see CudaOptions
  BorrowedGpus borrowed;
};

// A device and the wrappers that its owner talks to.
struct DeviceStack {
  std::shared_ptr<Device> device;
  Device* base = nullptr;   // the innermost device
  Device* trace = nullptr;  // inside `device`; null where there is none
  Device* check = nullptr;
};

// The names in a list that is separated by commas. kInvalidProblem if one of several is empty.
Result<std::vector<std::string>> DevicesOf(const std::string& text);

// "auto" is the first GPU where one works with these options, else the CPU; where a driver is there
// and fails, with a warning.
Result<DeviceStack> MakeDevice(const DeviceOptions& options);

// N of "cuda:N", 0 of "cuda".
Result<int> OrdinalOf(const std::string& device);

// Returns the number of other devices of the host that have a wire of their own, as this one has.
int CountPeers(const Device& device);
// Opens one of them, for copies only, with the options of this device.
Result<std::unique_ptr<Device>> MakePeer(const Device& device, const DeviceOptions& options,
                                         int number);

// Copies between GPU `ordinal` and host memory. kUnsupported where there is no such GPU.
Result<std::unique_ptr<swap::Swapper>> MakeSwapper(int ordinal);

// What staging may take at least where nobody says.
constexpr int64_t kLeastStaging = int64_t{1} << 30;
// Host memory that staging may take where nobody says: much only where tiles cross a wire.
int64_t StagingBytes(const Device& device);

// Bounce memory with which a device that has the engine copies at its fastest.
int64_t BounceBytes(const EngineInfo& engine);

// The back ends that are here, described, and those that are not, with the reason.
std::vector<Component> ReportBackends(const DeviceOptions& options);

}  // namespace oocdnn
