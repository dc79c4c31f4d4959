// How many other GPUs of the host are busy while calls run, as users and launchers say it.
#pragma once

#include <string>

#include "base/status.hpp"

namespace oocdnn {

constexpr int kMostBusyGpus = 63;

// 0 to kMostBusyGpus; else kInvalidProblem.
Result<int> ParseBusyGpus(const std::string& text);

// Of a launcher's so many programs on this host, those beside one, at most kMostBusyGpus; 0 where
// the text is no number of programs.
int OthersOf(const std::string& programs);

}  // namespace oocdnn
