#include "backends/busy_gpus.hpp"

#include <algorithm>

#include "geom/words.hpp"

namespace oocdnn {
namespace {

// The whole text; -1 where it is no number.
int NumberOf(const std::string& text) {
  int number = 0;
  return ReadNumber(text, &number) ? number : -1;
}

}  // namespace

Result<int> ParseBusyGpus(const std::string& text) {
  const int number = NumberOf(text);
  if (number >= 0 && number <= kMostBusyGpus) return number;
  return Error(Code::kInvalidProblem,
               "'%s' busy GPUs: write how many other GPUs of this host are busy too, 0 to %d",
               text.c_str(), kMostBusyGpus);
}

int OthersOf(const std::string& programs) {
  return std::clamp(NumberOf(programs) - 1, 0, kMostBusyGpus);
}

}  // namespace oocdnn
