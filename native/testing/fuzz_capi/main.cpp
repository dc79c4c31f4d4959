// Random calls of every function of the C interface on the CPU device, with values that no correct
// program passes among right ones, whose results are compared with a convolution by definition.
//
//   oocdnn_fuzz_capi SEED CALLS [ROUND]
//
// The calls come in rounds, each with contexts of its own; a report names the round, from which the
// third argument repeats.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "testing/fuzz_capi/session.hpp"
#include "testing/fuzz_capi/texts.hpp"

// A function of the sanitizers' run time, in instrumented builds.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*function)());  // NOLINT

namespace oocdnn::fuzz_capi {
namespace {

constexpr int kCalls = 60;              // of a round
constexpr unsigned kMostSeconds = 300;  // of a round

unsigned long long seed = 0;
long long round_now = 0;

void SayRound() {
  std::fprintf(stderr, "seed %llu, round %lld, ", seed, round_now);
  Say();
}

void Stuck(int) {
  std::fprintf(stderr, "a call does not end\n");
  std::abort();
}

void Died(int) {
  SayRound();
  std::_Exit(1);
}

void CallProfile(Random* random) {
  char path[] = "/tmp/oocdnn-fuzz-XXXXXX";
  const int file = mkstemp(path);
  const std::string text = DrawProfile(random), problem = DrawProblem(random, random->Chance(20));
  if (file < 0 || write(file, text.data(), text.size()) < 0) return;
  const std::string budget = random->Chance(80) ? "64KiB" : Damaged(random, "8GiB");
  const char* json = nullptr;
  Now("oocdnn_plan_for_profile", (problem + "\n" + text).c_str());
  Answered(oocdnn_plan_for_profile(random->Chance(2) ? "/" : path, problem.c_str(), budget.c_str(),
                                   random->Chance(80) ? nullptr : "7", &json));
  close(file);
  unlink(path);
}

// Several threads on the same contexts.
void CallTogether(Session* session) {
  std::vector<std::thread> threads;
  for (size_t number = 1; number <= 3; ++number) {
    threads.emplace_back([session, number, start = session->random.Next()] {
      SetThread(number);
      Session own(start);
      own.alone = false;
      own.contexts = session->contexts;
      for (int call = 0; call < kCalls / 2; ++call) CallAny(&own);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Round(long long number) {
  round_now = number;
  alarm(kMostSeconds);
  Session session(Random(seed * 1000003U + static_cast<uint64_t>(number)).Next());
  const size_t contexts = 1 + session.random.Below(2);
  for (size_t i = 0; i < contexts; ++i) OpenContext(&session);
  if (session.random.Chance(3)) CallTogether(&session);
  for (int call = 0; call < kCalls; ++call) CallAny(&session);
  CallProfile(&session.random);
}

void Main(int64_t calls, long long first) {
  std::signal(SIGALRM, Stuck);
  std::signal(SIGABRT, Died);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(SayRound);
  } else {
    std::signal(SIGSEGV, Died);
  }
  for (long long number = first; counts.calls < calls; ++number) Round(number);
  std::printf("%lld calls, %lld successes, %lld computed, %lld compared\n",
              static_cast<long long>(counts.calls), static_cast<long long>(counts.successes),
              static_cast<long long>(counts.computed), static_cast<long long>(counts.compared));
}

}  // namespace
}  // namespace oocdnn::fuzz_capi

int main(int count, char** words) {
  if (count < 3 || count > 4) {
    std::fprintf(stderr, "usage: oocdnn_fuzz_capi SEED CALLS [ROUND]\n");
    return 2;
  }
  setenv("OOCDNN_PLANS", "none", 1);
  setenv("OOCDNN_LOG", "error", 1);
  oocdnn::fuzz_capi::seed = std::strtoull(words[1], nullptr, 10);
  oocdnn::fuzz_capi::Main(std::strtoll(words[2], nullptr, 10),
                          count > 3 ? std::strtoll(words[3], nullptr, 10) : 0);
  return 0;
}
