// The calls of convolutions and chains.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>

#include "testing/clients/allocations.hpp"
#include "testing/fuzz_capi/session.hpp"

namespace oocdnn::fuzz_capi {
namespace {

// Actions of the progress callback of a call.
struct Callback {
  enum Deed { kGoOn, kInterrupt, kAsk, kUse, kDestroy, kUseOther, kExit, kDeeds };
  Session* session = nullptr;
  Opened* opened = nullptr;
  oocdnn_context* other = nullptr;
  Deed deed = kGoOn;
  int64_t after = 0;
  bool done = false;
};

oocdnn_status RunSmall(oocdnn_context* context) {
  constexpr int64_t kShape[] = {1, 1, 2};
  std::array<float, 2> x{1.0F, 2.0F}, w{3.0F, 1.0F}, y{};
  oocdnn_tensor xs = oocdnn_dense_tensor(OOCDNN_FLOAT32, 3, kShape, x.data());
  oocdnn_tensor ws = oocdnn_dense_tensor(OOCDNN_FLOAT32, 3, kShape, w.data());
  oocdnn_tensor ys = oocdnn_dense_tensor(OOCDNN_FLOAT32, 3, kShape, y.data());
  ys.shape[2] = 1;
  oocdnn_operands operands{};
  operands.x = &xs;
  operands.w = &ws;
  operands.y = &ys;
  const oocdnn_convolution call = oocdnn_default_convolution(OOCDNN_FORWARD, 1);
  const oocdnn_status status = oocdnn_run(context, &call, &operands);
  if (status == OOCDNN_OK) Expect(y[0] == 5.0F, "a wrong result of a small call");
  return status;
}

int Progress(void* user, int64_t tiles_done, int64_t tiles) {
  auto* const callback = static_cast<Callback*>(user);
  Expect(tiles_done >= 0 && tiles_done <= tiles, "more tiles than there are");
  if (tiles_done < callback->after || callback->done) return 0;
  oocdnn_context* const context = callback->opened->context;
  oocdnn_stats stats{};
  const char* text = nullptr;
  callback->done = true;
  switch (callback->deed) {
    case Callback::kInterrupt: return 1;
    case Callback::kAsk:
      Expect(oocdnn_get_stats(context, &stats) == OOCDNN_OK, "no stats in a callback");
      callback->done = false;
      return 0;
    case Callback::kUse:
      Expect(RunSmall(context) == OOCDNN_DEVICE_ERROR, "a call within a call");
      Expect(oocdnn_release(context) == OOCDNN_DEVICE_ERROR, "a release within a call");
      Expect(oocdnn_plan(context, "conv1d:fwd x1x1x4 w1x1x1", &text) == OOCDNN_DEVICE_ERROR,
             "a plan within a call");
      return 0;
    case Callback::kDestroy: oocdnn_destroy(context); return 0;
    case Callback::kUseOther:
      if (callback->other != nullptr && callback->other != context) {
        static_cast<void>(RunSmall(callback->other));
      }
      return 0;
    case Callback::kExit: pthread_exit(nullptr);
    default: return 0;
  }
}

struct Run {
  oocdnn_context* context;
  const oocdnn_convolution* call;
  const oocdnn_operands* operands;
};

void* RunAndEnd(void* argument) {
  const auto* const run = static_cast<const Run*>(argument);
  static_cast<void>(oocdnn_run(run->context, run->call, run->operands));
  return nullptr;
}

void EndThread(const Run& run) {
  pthread_t thread{};
  Run copy = run;
  if (pthread_create(&thread, nullptr, RunAndEnd, &copy) == 0) pthread_join(thread, nullptr);
}

Callback DrawCallback(Session* session, Opened* opened) {
  Random& random = session->random;
  Callback callback;
  callback.session = session;
  callback.opened = opened;
  callback.after = random.Between(0, 3);
  if (session->alone) callback.other = session->Any()->context;
  callback.deed = static_cast<Callback::Deed>(random.Below(Callback::kDeeds));
  const bool ends = callback.deed == Callback::kDestroy || callback.deed == Callback::kExit;
  if (ends && (!session->alone || !random.Chance(10))) callback.deed = Callback::kGoOn;
  return callback;
}

void CheckInputs(const Case& made) {
  if (made.shares) return;
  for (size_t i = 0; i < kOperands; ++i) {
    if (made.used[i] && !made.written[i]) {
      Expect(made.blocks[i].IsAsBefore(), "an input has changed");
    }
  }
}

void Remove(Session* session, const Opened* opened) {
  session->contexts.erase(session->contexts.begin() + (opened - session->contexts.data()));
}

// Reports tell of the case while this lives.
class Telling {
 public:
  explicit Telling(const Case* made) { With(made); }
  ~Telling() { With(nullptr); }
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;
};

void CallRun(Session* session) {
  Random& random = session->random;
  Case made;
  DrawCase(&random, random.Chance(35), &made);
  Opened* const opened = session->Any();
  if (opened == nullptr) return;
  oocdnn_context* const context = opened->context;
  Callback callback;
  const bool calls_back = random.Chance(15);
  if (calls_back) {
    callback = DrawCallback(session, opened);
    made.call.progress = Progress;
    made.call.progress_user = &callback;
  }
  const bool lacks = session->alone && !calls_back && random.Chance(4);
  Now("oocdnn_run");
  const Telling telling(&made);
  if (callback.deed == Callback::kExit) {
    EndThread({context, &made.call, &made.operands});
    return CheckInputs(made);
  }
  if (lacks) clients::until_failure = random.Between(1, 60);
  const oocdnn_status status = oocdnn_run(context, &made.call, &made.operands);
  clients::until_failure = lacks ? 0 : clients::until_failure.load();
  const bool may_fail = opened->may_fail;
  if (callback.deed == Callback::kDestroy && callback.done) Remove(session, opened);
  Answered(status);
  CheckInputs(made);
  if (status == OOCDNN_OK) {
    ++counts.computed;
    if (!made.exact) return;
    ++counts.compared;
    Expect(IsAsExpected(made), "a wrong result");
  } else if (made.exact && !may_fail && !lacks && !calls_back) {
    Expect(status == OOCDNN_UNSUPPORTED || status == OOCDNN_OUT_OF_MEMORY,
           "a right call is refused");
  }
}

// The functions about one call that do not touch its data.
void CallAbout(Session* session) {
  Random& random = session->random;
  Case made;
  DrawCase(&random, random.Chance(60), &made);
  int64_t bytes = 0;
  const char* text = nullptr;
  const bool no_place = random.Chance(2);
  const Telling telling(&made);
  const oocdnn_convolution* const call = random.Chance(1) ? nullptr : &made.call;
  const oocdnn_operands* const operands = random.Chance(1) ? nullptr : &made.operands;
  switch (random.Below(3)) {
    case 0:
      Now("oocdnn_saved_bytes");
      if (Answered(oocdnn_saved_bytes(call, operands, no_place ? nullptr : &bytes)) == OOCDNN_OK) {
        Expect(bytes >= 0, "less than no bytes");
      }
      break;
    case 1:
      Now("oocdnn_problem_text");
      if (Answered(oocdnn_problem_text(call, operands, no_place ? nullptr : &text)) == OOCDNN_OK) {
        Expect(std::strncmp(text, "conv", 4) == 0, "no problem string");
      }
      break;
    default: {
      Now("oocdnn_plan_in_core");
      const int64_t budget = random.Chance(50) ? 0 : random.Integer(100000);
      oocdnn_context* const context = session->Context();
      if (Answered(oocdnn_plan_in_core(context, call, operands, budget,
                                       no_place ? nullptr : &bytes)) == OOCDNN_OK) {
        Expect(bytes >= 0, "less than no bytes");
      }
    }
  }
}

// The links of a chain, each a case of its own.
struct Links {
  std::vector<std::unique_ptr<Case>> cases;
  std::vector<oocdnn_convolution> calls;
  std::vector<oocdnn_operands> operands;
  std::vector<int64_t> residuals;
};

void DrawLink(Random* random, const Sizes& sizes, bool backward, size_t last, Links* links) {
  const size_t i = links->cases.size();
  Case& made = *links->cases.emplace_back(std::make_unique<Case>());
  made.call = links->calls[i];
  const bool pools = made.call.pool.mode != OOCDNN_POOL_MODE_NONE;
  made.used[kW] = true;
  made.used[kBias] = random->Chance(30);
  if (backward) {
    made.used[kDw] = made.written[kDw] = random->Chance(60);
    made.used[kDb] = made.written[kDb] = random->Chance(30);
    made.used[kInput] = i == 0;
    made.used[kX] = made.written[kX] = i == 0 && random->Chance(60);
    made.used[kZ] = i == last;
  } else {
    made.used[kX] = i == 0;
    const Operand result = pools ? kZ : kY;
    made.used[result] = made.written[result] = i == last;
  }
  for (size_t o = 0; o < kOperands; ++o) {
    const auto operand = static_cast<Operand>(o);
    const bool dz = backward && operand == kZ && !pools;
    SetTensor(random, OOCDNN_FLOAT32, ShapeOf(dz ? kY : operand, sizes, made.call), true,
              &made.tensors[o]);
  }
}

Links DrawLinks(Random* random, bool backward, bool hostile) {
  Links links;
  const size_t count = 1 + random->Below(3);
  Sizes sizes;
  for (size_t i = 0; i < count; ++i) {
    oocdnn_convolution& call = links.calls.emplace_back();
    sizes = DrawSizes(random, i == 0 ? nullptr : &sizes, &call, OOCDNN_FORWARD);
    DrawLink(random, sizes, backward, count - 1, &links);
    Case& made = *links.cases.back();
    const bool breaks = hostile && random->Chance(40);
    if (breaks) BreakCall(random, &made.call);
    if (hostile && random->Chance(30)) BreakTensor(random, &made.tensors[random->Below(kOperands)]);
    if (hostile && random->Chance(10)) {
      const size_t any = random->Below(kOperands);
      made.used[any] = !made.used[any];
      made.written[any] = true;
    }
    for (size_t o = 0; o < kOperands; ++o) {
      if (made.used[o]) Place(random, hostile, static_cast<Operand>(o), &made);
    }
    made.Connect();
    for (Block& block : made.blocks) block.Remember();
    call = made.call;
    links.operands.push_back(made.operands);
    const bool adds = random->Chance(15);
    links.residuals.push_back(adds ? random->Between(-1, static_cast<int64_t>(i) - 1) : -2);
    if (hostile && random->Chance(10)) links.residuals.back() = random->Integer(4);
  }
  return links;
}

void CallChain(Session* session) {
  Random& random = session->random;
  const bool backward = random.Chance(40), hostile = random.Chance(35);
  Links links = DrawLinks(&random, backward, hostile);
  Opened* const opened = session->Any();
  if (opened == nullptr) return;
  auto count = static_cast<int64_t>(links.calls.size());
  if (hostile && random.Chance(5)) count = -random.Between(0, 1);
  const int64_t* const residuals = random.Chance(50) ? nullptr : links.residuals.data();
  Callback callback;
  const bool calls_back = random.Chance(15);
  if (calls_back) {
    callback = DrawCallback(session, opened);
    if (callback.deed == Callback::kExit) callback.deed = Callback::kInterrupt;
    links.calls[0].progress = Progress;
    links.calls[0].progress_user = &callback;
  }
  double seconds = 0.0;
  oocdnn_context* const context = opened->context;
  const oocdnn_convolution* const calls = links.calls.data();
  const oocdnn_operands* const operands = links.operands.data();
  oocdnn_status status = OOCDNN_OK;
  switch (random.Below(4)) {
    case 0:
      Now("oocdnn_price_chain");
      status = backward ? oocdnn_price_chain_backward(context, calls, operands, count, &seconds)
                        : oocdnn_price_chain(context, calls, operands, residuals, count, &seconds);
      if (status == OOCDNN_OK) Expect(seconds >= 0.0, "no time");
      break;
    default:
      Now(backward ? "oocdnn_run_chain_backward" : "oocdnn_run_chain");
      status = backward ? oocdnn_run_chain_backward(context, calls, operands, count)
                        : oocdnn_run_chain(context, calls, operands, residuals, count);
      if (status == OOCDNN_OK) ++counts.computed;
      if (callback.deed == Callback::kDestroy && callback.done) Remove(session, opened);
  }
  Answered(status);
  for (const auto& made : links.cases) CheckInputs(*made);
}

void ReplaceContext(Session* session) {
  if (!session->alone) return;
  if (session->contexts.size() > 2 || session->random.Chance(50)) {
    Opened* const opened = session->Any();
    if (opened == nullptr) return;
    Now("oocdnn_destroy");
    oocdnn_destroy(opened->context);
    Remove(session, opened);
  }
  OpenContext(session);
}

}  // namespace

void CallAny(Session* session) {
  const size_t dice = session->random.Below(1000);
  if (dice < 270) return CallRun(session);
  if (dice < 450) return CallAbout(session);
  if (dice < 500) return CallChain(session);
  if (dice < 600) return CallStrings(session);
  if (dice < 740) return CallState(session);
  if (dice < 820) return CallMemory(session);
  if (dice < 900) return CallDivision(&session->random);
  if (dice < 940) return CallHeap(&session->random);
  if (dice < 985) return CallSchedules(&session->random);
  if (dice < 990) return CallSwap(&session->random);
  return ReplaceContext(session);
}

}  // namespace oocdnn::fuzz_capi
