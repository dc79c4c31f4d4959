// Contexts through the C interface: of each thread's own and shared by all, interrupted, watched by
// another thread, on files, and with the n-th call of the device failing.
#include <atomic>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "testing/exercise/convolution.hpp"
#include "testing/exercise/exercise.hpp"

namespace oocdnn::exercise {
namespace {

constexpr int kConvolutions = 12;
constexpr int kCalls = 60;  // of each thread
constexpr int kMostFaults = 1000;
// A failure may be made up for, so the count is past the last call only after several successes.
constexpr int kSuccesses = 4;

std::vector<Convolution> MakeConvolutions() {
  std::vector<Convolution> all;
  all.reserve(kConvolutions);
  for (unsigned seed = 0; seed < kConvolutions; ++seed) all.emplace_back(seed);
  return all;
}

void Expect(oocdnn_status seen, oocdnn_status wanted, const Convolution& convolution) {
  if (seen == wanted) return;
  const std::string error = oocdnn_last_error();
  Fail("%s: status %d, not %d: %s", convolution.Text().c_str(), seen, wanted, error.c_str());
}

// What a thread may ask of a context while others compute on it.
void Watch(oocdnn_context* context, const std::atomic<bool>& stop) {
  while (!stop) {
    oocdnn_stats stats;
    const char* text = nullptr;
    oocdnn_get_stats(context, &stats);
    oocdnn_take_trace(context, &text);
    oocdnn_check_reports(context, &text);
    oocdnn_info(context, &text);
    oocdnn_plan(context, "conv2d:fwd x1x4x32x32 w4x4x3x3 pad1", &text);
    oocdnn_release(context);
    std::this_thread::yield();
  }
}

// One of four kinds of contexts, by the number of the thread. The second one takes any engine.
oocdnn_options OptionsOf(int thread) {
  constexpr const char* kEngines[] = {"direct", "", "reference", "direct"};
  oocdnn_options options = SmallOptions();
  options.engine = kEngines[thread % 4];
  options.threads = thread % 4 == 0 ? 3 : 1;
  options.wrap = thread % 4 == 3 ? "check" : "";
  return options;
}

// The n-th call of this kind fails on a new context. True where the convolution went through.
bool Survive(const Convolution& convolution, const std::string& fault, bool sticky) {
  const std::string wrap = fault + (sticky ? ":sticky" : "");
  oocdnn_options options = SmallOptions();
  options.wrap = wrap.c_str();
  options.threads = 1;
  const OwnedContext context = Open(options);
  if (context == nullptr) return false;
  if (convolution.RunInFiles(context.get()) == OOCDNN_OK) return true;
  if (!sticky) Expect(convolution.RunInFiles(context.get()), OOCDNN_OK, convolution);
  return false;
}

void Exhaust(const Convolution& convolution, const std::string& kind, bool sticky) {
  int successes = 0;
  for (int nth = 1; nth < kMostFaults && successes < kSuccesses; ++nth) {
    const std::string fault = "check,fault:" + kind + ":" + std::to_string(nth);
    successes = Survive(convolution, fault, sticky) ? successes + 1 : 0;
  }
  if (successes < kSuccesses) Fail("%s still fails at %d", kind.c_str(), kMostFaults);
}

}  // namespace

void Contexts() {
  const std::vector<Convolution> convolutions = MakeConvolutions();
  oocdnn_options options = SmallOptions();
  options.trace = 1;
  options.wrap = "check";
  const OwnedContext shared = Open(options);
  std::atomic<bool> stop{false};
  std::thread watcher([&] { Watch(shared.get(), stop); });
  OnThreads([&](int number) {
    const OwnedContext own = Open(OptionsOf(number));
    for (int i = 0; i < kCalls; ++i) {
      const Convolution& convolution =
          convolutions[static_cast<size_t>(number + 5 * i) % kConvolutions];
      oocdnn_context* const context = (i % 2 == 0 ? own : shared).get();
      if (i % 6 == 0) Expect(convolution.Interrupt(context), OOCDNN_INTERRUPTED, convolution);
      Expect(convolution.Run(context), OOCDNN_OK, convolution);
    }
  });
  stop = true;
  watcher.join();
}

void Files() {
  const std::vector<Convolution> convolutions = MakeConvolutions();
  OnThreads([&](int number) {
    const OwnedContext own = Open(OptionsOf(number));
    for (const Convolution& convolution : convolutions) {
      Expect(convolution.RunInFiles(own.get()), OOCDNN_OK, convolution);
    }
  });
}

void Faults() {
  constexpr const char* kKinds[] = {"allocate", "allocate_host", "create", "copy",
                                    "run",      "event",         "prepare"};
  const std::vector<Convolution> convolutions = MakeConvolutions();
  OnThreads([&](int number) {
    if (number >= static_cast<int>(std::size(kKinds))) return;
    const Convolution& convolution = convolutions[static_cast<size_t>(number % 4)];
    for (const bool sticky : {false, true}) Exhaust(convolution, kKinds[number], sticky);
  });
}

}  // namespace oocdnn::exercise
