// Starting the device's threads, and keeping what a fork has orphaned.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/status.hpp"

namespace oocdnn::cpu {

// A thread that runs `body`, with every signal blocked (they belong to the program's own threads)
// and `name` (at most 15 characters are kept) for debuggers. kDeviceError when the system refuses.
Result<std::thread> StartThread(const char* name, std::function<void()> body);

// Keeps `object` for ever. In a forked child a mutex may be locked by a thread that is not there,
// so what holds it can neither be used nor destroyed; keeping it reachable tells leak checkers.
void Abandon(std::shared_ptr<void> object);

}  // namespace oocdnn::cpu
