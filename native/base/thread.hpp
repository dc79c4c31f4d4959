// Starting the library's own threads.
#pragma once

#include <functional>
#include <thread>

#include "base/status.hpp"

namespace oocdnn {

// A thread that runs `body`, with every signal blocked (they belong to the program's own threads)
// and `name` (at most 15 characters are kept) for debuggers. kDeviceError when the system refuses.
// `body` may not throw, see Guarded.
Result<std::thread> StartThread(const char* name, std::function<void()> body);

}  // namespace oocdnn
