// Operators new and delete of the clients, which the libraries use too. They fail on request, and
// where the system has no memory; those of the address sanitizer end the process instead.
#pragma once

#include <atomic>
#include <cstdint>

namespace oocdnn::clients {

// The allocations until one fails, whose count becomes 0; none fails at 0 and below.
extern std::atomic<int64_t> until_failure;

}  // namespace oocdnn::clients
