// Knows whether this process is a forked child of the one that started our threads.
#pragma once

#include <cstdint>

namespace oocdnn::cpu {

// Grows by one in every forked child. What was started under another generation (threads) does not
// exist any more, and what was locked then may stay locked for ever.
int64_t ForkGeneration();

}  // namespace oocdnn::cpu
