// The exercise program: runs all of its parts, or those that are named.
//
//   oocdnn_exercise [conformance] [schedules] [contexts] [files] [faults] [memory]
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "testing/exercise/convolution.hpp"
#include "testing/exercise/exercise.hpp"

namespace oocdnn::exercise {
namespace {

std::mutex output;
int failures = 0;

struct Part {
  const char* name;
  void (*run)();
};

constexpr Part kParts[] = {
    {"conformance", Conformance}, {"schedules", Schedules},
    {"contexts", Contexts},       {"files", Files},
    {"faults", Faults},           {"memory", Memory},
};

bool IsAsked(const char* name, int count, char** names) {
  if (count == 0) return true;
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(name, names[i]) == 0) return true;
  }
  return false;
}

// oneDNN makes its tables at the first use. The guard around that is not instrumented, so threads
// that came later would be reported: hence before any thread.
void UseEveryEngine() {
  const Convolution convolution(0);
  oocdnn_options options = SmallOptions();
  options.engine = "";
  options.threads = 1;
  const OwnedContext context = Open(options);
  if (convolution.Run(context.get()) != OOCDNN_OK) Fail("first use: %s", oocdnn_last_error());
}

void Run(const Part& part) {
  const auto start = std::chrono::steady_clock::now();
  part.run();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%-12s %6.1f s\n", part.name, taken.count());
  std::fflush(stdout);
}

}  // namespace

void Fail(const char* format, ...) {
  const std::lock_guard lock(output);
  ++failures;
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

void OnThreads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int number = 0; number < kThreads; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace oocdnn::exercise

int main(int count, char** words) {
  namespace exercise = oocdnn::exercise;
  exercise::UseEveryEngine();
  for (const exercise::Part& part : exercise::kParts) {
    if (exercise::IsAsked(part.name, count - 1, words + 1)) exercise::Run(part);
  }
  std::printf("%d failures\n", exercise::failures);
  return exercise::failures == 0 ? 0 : 1;
}
