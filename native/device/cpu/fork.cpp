// Counts forks with an at-fork handler, which costs nothing per call (a getpid would).
#include "device/cpu/fork.hpp"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace oocdnn::cpu {
namespace {

std::atomic<int64_t> generation{0};

void CountFork() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

int64_t ForkGeneration() {
  static const int registered = pthread_atfork(nullptr, nullptr, CountFork);
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

void Abandon(std::shared_ptr<void> object) {
  // Nobody deletes this: the pointer in it keeps the object. Several threads may come here at once.
  static_cast<void>(new std::shared_ptr<void>(std::move(object)));
}

}  // namespace oocdnn::cpu
