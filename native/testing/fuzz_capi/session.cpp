#include "testing/fuzz_capi/session.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <limits>

#include "testing/fuzz_capi/texts.hpp"

namespace oocdnn::fuzz_capi {
namespace {

// The last call of a thread. Reports may come from threads of the library's, so they tell of all.
struct Record {
  std::atomic<const char*> name{""};
  std::atomic<const Case*> made{nullptr};
  std::array<char, 300> text{};
};
constexpr size_t kMostThreads = 4;
std::array<Record, kMostThreads> records;
thread_local size_t own_record = 0;

void Print(const char* name, const int64_t* numbers, int count) {
  std::fprintf(stderr, " %s", name);
  for (int i = 0; i < count; ++i) {
    std::fprintf(stderr, "%c%lld", i == 0 ? ' ' : ',', static_cast<long long>(numbers[i]));
  }
}

void Print(const Case& made) {
  const oocdnn_convolution& call = made.call;
  std::fprintf(stderr, "  direction %d rank %d groups %lld mode %d math %d alpha %g beta %g",
               call.direction, call.rank, static_cast<long long>(call.groups), call.mode, call.math,
               call.alpha, call.beta);
  std::fprintf(stderr, " activation %d(%g) prologue %d saves %d pool %d ceil %d", call.activation,
               call.activation_parameter, call.prologue_activation, call.saves, call.pool.mode,
               call.pool.ceil);
  Print("pad", call.pad_before, 3);
  Print("to", call.pad_after, 3);
  Print("stride", call.stride, 3);
  Print("dilation", call.dilation, 3);
  if (call.pool.mode != 0) {
    Print("window", call.pool.window, 3);
    Print("stride", call.pool.stride, 3);
    Print("pad", call.pool.pad_before, 3);
    Print("to", call.pool.pad_after, 3);
  }
  std::fprintf(stderr, "\n");
  constexpr const char* kNames[] = {"x",     "w",     "y",  "bias", "scale",    "residual", "z",
                                    "saved", "input", "dw", "db",   "prologue", "sums"};
  for (size_t i = 0; i < kOperands; ++i) {
    if (!made.used[i]) continue;
    const oocdnn_tensor& tensor = made.tensors[i];
    std::fprintf(stderr, "  %s type %d rank %d fd %d at %p, %zu bytes", kNames[i], tensor.dtype,
                 tensor.rank, tensor.fd, tensor.data, made.blocks[i].bytes());
    Print("shape", tensor.shape, 5);
    Print("stride", tensor.stride, 5);
    std::fprintf(stderr, "\n");
  }
}

double DrawRate(Random* random) {
  constexpr double kOdd[] = {-1.0, 1e-3, 1e300, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
  return random->Chance(50) ? 1000.0 : kOdd[random->Below(std::size(kOdd))];
}

template <size_t kCount>
const char* Pick(Random* random, const char* const (&texts)[kCount]) {
  return texts[random->Below(kCount)];
}

}  // namespace

Counts counts;

void SetThread(size_t number) { own_record = number; }

void Now(const char* name, const char* text) {
  Record& record = records[own_record];
  record.name = name;
  std::snprintf(record.text.data(), record.text.size(), "%s", text != nullptr ? text : "");
}

void With(const Case* made) { records[own_record].made = made; }

void Say() {
  std::fprintf(stderr, "call %lld:\n", static_cast<long long>(counts.calls));
  for (const Record& record : records) {
    if (*record.name.load() == '\0') continue;
    std::fprintf(stderr, "%s %s\n", record.name.load(), record.text.data());
    if (const Case* const made = record.made) Print(*made);
  }
}

void Expect(bool holds, const char* rule) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", rule);
  std::fprintf(stderr, "last error: %s\n", oocdnn_last_error());
  Say();
  std::abort();
}

oocdnn_status Answered(oocdnn_status status) {
  ++counts.calls;
  const auto code = static_cast<int>(status);
  if (code == OOCDNN_OK) {
    ++counts.successes;
    return status;
  }
  Expect(code > OOCDNN_OK && code < OOCDNN_INTERNAL, "a status that no call may have");
  Expect(oocdnn_last_error()[0] != '\0', "an error without a text");
  Expect(oocdnn_last_error_detail() >= 0, "a negative number beside an error");
  return status;
}

oocdnn_context* Session::Context() {
  Opened* const any = Any();
  return any == nullptr || random.Chance(1) ? nullptr : any->context;
}

Session::~Session() {
  for (const Opened& opened : contexts) {
    if (!alone || opened.context == nullptr) continue;
    const char* text = nullptr;
    Now("oocdnn_check_reports");
    if (Answered(oocdnn_check_reports(opened.context, &text)) == OOCDNN_OK) {
      if (text[0] != '\0') std::fprintf(stderr, "%s\n", text);
      Expect(text[0] == '\0', "the checking device complains");
    }
    Now("oocdnn_destroy");
    oocdnn_destroy(opened.context);
  }
  for (oocdnn_host_memory* const memory : memories) oocdnn_free_host(memory);
}

void OpenContext(Session* session) {
  constexpr const char* kEngines[] = {"direct", "", "reference", "onednn", "direct"};
  constexpr const char* kDevices[] = {"auto",  "cuda:0", "cuda:99999999999", "gpu", "cuda:-1", "",
                                      "cpu:1", "CPU"};
  constexpr const char* kPlannings[] = {"estimate", "gradual", "estimate", "estimated"};
  Random& random = session->random;
  const bool hostile = random.Chance(15);
  const std::string budget = DrawBudget(&random, hostile && random.Chance(40));
  const std::string wrap = DrawWrap(&random, hostile && random.Chance(30));
  const std::string workspace = DrawBudget(&random, hostile && random.Chance(40));
  const std::string busy = random.Chance(50) ? "0" : Damaged(&random, "3");
  oocdnn_options options = oocdnn_default_options();
  options.device = hostile && random.Chance(20) ? Pick(&random, kDevices) : "cpu";
  options.budget = budget.c_str();
  options.engine = hostile && random.Chance(10) ? "fastest" : Pick(&random, kEngines);
  options.wrap = wrap.c_str();
  options.profile = "none";
  options.planning = Pick(&random, kPlannings);
  if (random.Chance(20)) options.workspace = workspace.c_str();
  if (hostile && random.Chance(20)) options.busy_gpus = busy.c_str();
  if (hostile && random.Chance(20)) options.borrow = busy.c_str();
  options.threads = hostile && random.Chance(20) ? random.Int(3) : random.Chance(90) ? 1 : 2;
  options.reproducible = random.Chance(20) ? random.Int(2) : 0;
  options.trace = random.Chance(20) ? 1 : 0;
  options.math = hostile && random.Chance(20) ? random.Int(3) : random.Chance(10) ? 1 : 0;
  options.host_cap = hostile && random.Chance(20) ? random.Integer(100000) : 0;
  options.link_gb_per_s = hostile && random.Chance(20) ? DrawRate(&random) : 0.0;
  options.planning_seconds = hostile && random.Chance(20) ? DrawRate(&random) : 0.0;
  oocdnn_context* context = nullptr;
  Now("oocdnn_create", (wrap + " " + budget).c_str());
  const oocdnn_status status = oocdnn_create(&options, random.Chance(1) ? nullptr : &context);
  if (Answered(status) != OOCDNN_OK) {
    Expect(context == nullptr, "a context beside an error");
    return;
  }
  session->contexts.push_back(
      {context, wrap.find("fault") != std::string::npos || wrap.find("limit") != std::string::npos,
       wrap.find("check") != std::string::npos});
}

}  // namespace oocdnn::fuzz_capi
