// Random calls of the drop-in's core where there is no GPU, with values that no correct program
// passes: counts, types, extents, null pointers. Descriptors that are destroyed are not used.
//
//   oocdnn_fuzz SEED CALLS
//
// A call that breaks a rule is named with the seed; so is the one that a sanitizer reports.
#include <cstdio>
#include <cstdlib>

#include "testing/fuzz/client.hpp"

// Of the sanitizers' run time, where the program is built with one.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*function)());  // NOLINT

namespace oocdnn::fuzz {
namespace {

const Client* current = nullptr;

void SayCurrent() { current->Say(); }

void Run(uint64_t seed, int64_t calls) {
  Client client(seed);
  Graphs graphs(&client);
  current = &client;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SayCurrent);
  while (client.calls < calls) {
    const size_t dice = client.random.Below(1000);
    if (dice < 2) {
      CallConvolution(&client);
    } else if (dice < 3) {
      graphs.Run();
    } else if (dice < 6) {
      graphs.Judge();
    } else if (dice < 600) {
      CallLegacy(&client);
    } else {
      graphs.Call();
    }
  }
  std::printf("%lld calls, %lld successes, %lld computed\n", static_cast<long long>(client.calls),
              static_cast<long long>(client.successes), static_cast<long long>(client.computed));
}

}  // namespace
}  // namespace oocdnn::fuzz

int main(int count, char** words) {
  if (count != 3) {
    std::fprintf(stderr, "usage: oocdnn_fuzz SEED CALLS\n");
    return 2;
  }
  oocdnn::fuzz::Run(std::strtoull(words[1], nullptr, 10), std::strtoll(words[2], nullptr, 10));
  return 0;
}
