// The CPU device: a device made of the host.
//
// Its memory is a bounded account of host memory, its streams are threads, its work is really
// asynchronous. Work that needs the cores (copies, engines) takes turns on one dedicated thread, so
// that one team of OpenMP workers exists whatever the number of streams.
#pragma once

#include <memory>

#include "device/device.hpp"

namespace oocdnn {

struct CpuOptions {
  int threads = 0;             // 0: the cores this process may use
  int64_t memory_bytes = 0;    // what Allocate may hold in all; 0: half of what the cgroup leaves
  double link_gb_per_s = 0.0;  // > 0: each direction is a wire of this rate, busy while it moves
  unsigned jitter_seed = 0;    // > 0: random delays before each piece of work (tests)
  std::string engine;          // only this engine; "": all that load, fastest first
};

Result<std::unique_ptr<Device>> MakeCpuDevice(const CpuOptions& options);

}  // namespace oocdnn
