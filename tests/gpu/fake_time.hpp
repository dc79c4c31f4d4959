// How long a run takes in the fake cuDNN, beside its arithmetic, as the environment says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "fake_convolution.hpp"
#include "fake_engines.hpp"
#include "fake_stream.hpp"

namespace fake {

// The environment may give engines rates instead: "28=2e10 1=1e12" in operations a second, of which
// a run takes as many milliseconds, at least one. Nothing is computed then, so that tiles may be
// large; OOC_FAKE_TOOK names a file that gets a line for every run.
inline const char* Rates() { return std::getenv("OOC_FAKE_RATES"); }

// What a variable says of an engine: "28=2e10 1=1e12"; else 0.
inline double NumberOf(const FakeEngine& engine, const char* variable) {
  const char* const all = std::getenv(variable);
  std::istringstream text(all == nullptr ? "" : all);
  for (std::string one; text >> one;) {
    const size_t equals = one.find('=');
    if (std::stoll(one) != engine.index || equals == std::string::npos) continue;
    return std::stod(one.substr(equals + 1));
  }
  return 0.0;
}

// OOC_FAKE_LEAST: an engine is not offered for fewer operations.
inline bool Offered(const FakeEngine& engine, double operations) {
  return operations >= NumberOf(engine, "OOC_FAKE_LEAST");
}

inline void TakeTimeAtRate(const FakeEngine& engine, double operations) {
  if (const double rate = NumberOf(engine, "OOC_FAKE_RATES"); rate > 0.0) {
    const double seconds = operations / rate;
    const int milliseconds = std::max(static_cast<int>(seconds * 1e3), 1);
    AskDriver("fake_pass", milliseconds);
    if (const char* const took = std::getenv("OOC_FAKE_TOOK")) {
      std::ofstream(took, std::ios::app) << 'e' << engine.index << ' ' << milliseconds << '\n';
    }
  }
}

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
    AskDriver("fake_pass", static_cast<int>(kBesideHungry * x.dims[0]));
  }
}

}  // namespace fake
