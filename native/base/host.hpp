// What the machine gives this process: cores, memory, and the name of its processor.
#pragma once

#include <cstdint>
#include <string>

namespace oocdnn {

// Cores this process may use: its affinity mask, cut by the cgroup's quota. At least 1.
int HostThreads();

// Bytes this process can still take: the least that any cgroup above it (v1 or v2) and the
// system's own estimate leave. File cache that the kernel would give back counts as free.
int64_t AvailableMemory();

// The processor's name as the system gives it, or "unknown processor".
std::string ProcessorName();

}  // namespace oocdnn
