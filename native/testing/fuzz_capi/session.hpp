// The state of one round: contexts, host memory, and the checks that every call has to pass.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "capi/oocdnn.h"
#include "testing/clients/random.hpp"
#include "testing/fuzz_capi/case.hpp"

namespace oocdnn::fuzz_capi {

// Counts of the whole run.
struct Counts {
  std::atomic<int64_t> calls{0}, successes{0}, computed{0}, compared{0};
};
extern Counts counts;

// Names the call that is about to be made, for reports. `text` (may be null) is its string
// argument.
void Now(const char* name, const char* text = nullptr);
// Its convolution; null before that goes.
void With(const Case* made);
// The number of this thread among those that make calls, 0 to 3.
void SetThread(size_t number);
void Say();
// Ends the process, the round and the call named, where a rule does not hold.
void Expect(bool holds, const char* rule);
// Every status is known, and one that is not OOCDNN_OK has a text.
oocdnn_status Answered(oocdnn_status status);

// A context and what may go wrong in it.
struct Opened {
  oocdnn_context* context = nullptr;
  bool may_fail = false;  // faults are injected
  bool checks = false;
};

struct Session {
  explicit Session(uint64_t seed) : random(seed) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Opened* Any() { return contexts.empty() ? nullptr : &contexts[random.Below(contexts.size())]; }
  // Null now and then, and where there is no context.
  oocdnn_context* Context();

  Random random;
  std::vector<Opened> contexts;
  std::vector<oocdnn_host_memory*> memories;
  std::vector<std::vector<unsigned char>> pinned;  // of the caller, which memories refer to
  bool alone = true;                               // no other thread uses the contexts
};

// Opens one more context.
void OpenContext(Session* session);
// One random call.
void CallAny(Session* session);
// One that is asked by strings, about the state, or for host memory.
void CallStrings(Session* session);
void CallState(Session* session);
void CallMemory(Session* session);
// The functions that divide workspace, which need no context.
void CallDivision(Random* random);
// Those of training steps, which need none either.
void CallSchedules(Random* random);
// Those of the simulated allocator, neither.
void CallHeap(Random* random);
// The functions of copies, which need a GPU and report that there is none.
void CallSwap(Random* random);

}  // namespace oocdnn::fuzz_capi
