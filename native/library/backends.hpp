// The one file that names the back ends: from a device's name to a Device with its wrappers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

struct DeviceOptions {
  std::string device = "auto";  // "auto", "cpu"
  std::string engine;           // only this one; "": any
  std::string wrap;             // comma-separated, inner first: "limit:64MiB", "check", "trace",
                                // "fault:copy:3", "fault:run:1:sticky"
  int threads = 0;
  double link_gb_per_s = 0.0;
};

// A device and the wrappers that its owner talks to.
struct DeviceStack {
  std::unique_ptr<Device> device;
  Device* base = nullptr;   // the innermost device
  Device* trace = nullptr;  // inside `device`; null where there is none
  Device* check = nullptr;
};

Result<DeviceStack> MakeDevice(const DeviceOptions& options);

// What is here and what is missing, for `oocdnn info`.
struct BackendReport {
  std::string name;
  bool available = false;
  std::string text;    // the device's description, or why it cannot be used
  std::string remedy;  // what to do about it; "" where nothing helps
};
std::vector<BackendReport> ReportBackends();

}  // namespace oocdnn
