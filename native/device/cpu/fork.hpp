// Knows whether this process is a forked child of the one that started our threads, and keeps what
// the fork has orphaned.
#pragma once

#include <cstdint>
#include <memory>

namespace oocdnn::cpu {

// Grows by one in every forked child. What was started under another generation (threads) does not
// exist any more, and what was locked then may stay locked for ever.
int64_t ForkGeneration();

// Keeps `object` for ever. In a forked child a mutex may be locked by a thread that is not there,
// so what holds it can neither be used nor destroyed; keeping it reachable tells leak checkers.
void Abandon(std::shared_ptr<void> object);

}  // namespace oocdnn::cpu
