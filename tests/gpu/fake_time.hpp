// How long a run takes in the fake cuDNN, beside its arithmetic, as the environment says.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "fake_convolution.hpp"
#include "fake_engines.hpp"
#include "fake_stream.hpp"

namespace fake {

inline void TakeTime(const FakeEngine& engine, const View& x) {
  // The code of an engine is loaded when it first runs, that for volumes apart.
  static auto* const loaded = new std::set<std::pair<int64_t, bool>>;
  if (loaded->emplace(engine.index, x.dims[2] > 1).second && std::getenv("OOC_FAKE_COLD")) {
    AskDriver("fake_pass", kCold);
  }
  static int runs = 0;
  static const int64_t first = engine.index;
  if (std::getenv("OOC_FAKE_WAITED") != nullptr) {
    if (runs++ < kWaited) AskDriver("fake_pass", kRising);
    if (engine.index != first) AskDriver("fake_pass", kBehind);
  }
  const char* const slow = std::getenv("OOC_FAKE_SLOW_ENGINE");
  if (slow != nullptr && std::atoll(slow) == engine.index) AskDriver("fake_pass", kSlow);
  if (std::getenv("OOC_FAKE_HUNGRY") != nullptr && engine.index != kHungry.index) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kSleep * x.dims[0]));
  }
}

}  // namespace fake
