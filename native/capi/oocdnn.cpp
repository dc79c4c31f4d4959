// The C functions of contexts: translation and a guard.
#include "capi/oocdnn.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "backends/borrowed.hpp"
#include "backends/busy_gpus.hpp"
#include "base/config.hpp"
#include "capi/context.hpp"
#include "capi/guard.hpp"
#include "capi/info.hpp"
#include "capi/translate.hpp"
#include "capi/variables.hpp"
#include "geom/words.hpp"
#include "library/plan_for_profile.hpp"

namespace {

using namespace oocdnn;  // NOLINT: this file is the C face of that namespace

// Hands a text out, which belongs to the calling thread.
const char* Give(std::string text) {
  thread_local HandedOut<std::string> texts;
  std::string& given = texts.Next();
  given = std::move(text);
  return given.c_str();
}

// An option as given, else its variable, else the fallback.
std::string Choose(const char* option, Var var, const char* fallback) {
  if (option != nullptr) return option;
  return Get(var).value_or(fallback);
}

constexpr int kMostThreads = 1024;
constexpr double kMostLink = 1e5;  // GB/s

// The number that a variable holds, else the fallback.
template <class T>
Result<T> NumberIn(Var var, T fallback, T least, T most) {
  const std::optional<std::string> text = Get(var);
  if (!text) return fallback;
  T number{};
  if (ReadNumber(*text, &number) && number >= least && number <= most) return number;
  return Error(Code::kInvalidProblem, "%s is '%s': write a number from %g to %g", InfoOf(var).name,
               text->c_str(), static_cast<double>(least), static_cast<double>(most));
}

Status PutPlanning(const oocdnn_options& given, ContextOptions* options) {
  OOC_ASSIGN(options->planning, ParsePlanning(Choose(given.planning, Var::kPlanning, "estimate")));
  if (given.planning_seconds != 0.0) {
    const std::string seconds = Format("%.17g", given.planning_seconds);
    OOC_ASSIGN(options->planning_seconds, ParsePlanningSeconds(seconds));
  } else if (const auto seconds = Get(Var::kPlanningSeconds)) {
    OOC_ASSIGN(options->planning_seconds, ParsePlanningSeconds(*seconds));
  }
  return {};
}

// A launcher tells its programs how many it has started here, of which each takes a GPU.
Result<int> BusyGpusOf(const char* given) {
  const std::string said = Choose(given, Var::kBusyGpus, "");
  if (!said.empty()) return ParseBusyGpus(said);
  const char* const launched = std::getenv("LOCAL_WORLD_SIZE");
  return OthersOf(launched != nullptr ? launched : "");
}

Result<BorrowedGpus> BorrowedOf(const oocdnn_options& given, const std::string& device) {
  if (given.borrow == nullptr) return BorrowedFor(device);
  if (*given.borrow == '\0') return BorrowedGpus();
  if (device.find(',') != std::string::npos) {
    return Error(Code::kUnsupported, "the devices '%s' copy over their own links: name one device",
                 device.c_str());
  }
  return ParseBorrowed(given.borrow);
}

Status CheckNumbers(const oocdnn_options& given) {
  if (given.threads < 0 || given.threads > kMostThreads) {
    return Error(Code::kInvalidProblem, "threads is %d; 0 to %d are possible", given.threads,
                 kMostThreads);
  }
  if (given.math < 0 || given.math >= kMaths) {
    return Error(Code::kInvalidProblem,
                 "math is %d; 0 (fp32), 1 (tf32), 2 (fp32x3) and 3 (fp32_fast) are possible",
                 given.math);
  }
  const bool usable = given.link_gb_per_s >= 0.0 && given.link_gb_per_s <= kMostLink;
  if (!usable) {  // NaN is not
    return Error(Code::kInvalidProblem, "link_gb_per_s is %g; 0 to %g are possible",
                 given.link_gb_per_s, kMostLink);
  }
  return NeedBytes(given.host_cap, "host_cap");
}

// The arithmetic of calls that say fp32: the options' or, where they say fp32 too, the variable's.
Result<Math> MathOf(const oocdnn_options& given) {
  const std::string name = Get(Var::kMath).value_or("fp32");
  if (given.math != OOCDNN_MATH_FP32) return static_cast<Math>(given.math);
  for (int i = 0; i < kMaths; ++i) {
    if (name == Name(static_cast<Math>(i))) return static_cast<Math>(i);
  }
  return Error(Code::kInvalidProblem, "%s is \"%s\"; fp32, tf32, fp32x3 and fp32_fast are possible",
               InfoOf(Var::kMath).name, name.c_str());
}

Result<ContextOptions> OptionsOf(const oocdnn_options& given) {
  OOC_TRY(CheckNumbers(given));
  ContextOptions options;
  options.device.device = Choose(given.device, Var::kDevice, "auto");
  options.device.engine = Choose(given.engine, Var::kEngine, "");
  options.device.wrap = given.wrap != nullptr ? given.wrap : "";
  options.device.threads = given.threads;
  if (given.threads == 0) {
    OOC_ASSIGN(options.device.threads, NumberIn(Var::kThreads, 0, 0, kMostThreads));
  }
  options.device.link_gb_per_s = given.link_gb_per_s;
  if (given.link_gb_per_s == 0.0) {
    OOC_ASSIGN(options.device.link_gb_per_s, NumberIn(Var::kLink, 0.0, 0.0, kMostLink));
  }
  OOC_TRY(NumberIn(Var::kAutoPin, 1, 0, 1).status());  // read again by each call
  options.device.cudnn_path = Get(Var::kCudnnLibrary).value_or("");
  options.device.nvrtc_path = Get(Var::kNvrtcLibrary).value_or("");
  options.device.cache_folder = Get(Var::kCache).value_or("");
  options.budget = Choose(given.budget, Var::kBudget, "auto");
  options.profile = Choose(given.profile, Var::kProfile, "");
  options.plans = Get(Var::kPlans).value_or("");
  if (const std::string most = Choose(given.workspace, Var::kWorkspaceLimit, ""); !most.empty()) {
    Result<int64_t> bytes = ParseBytes(most);
    if (!bytes.ok()) return std::move(bytes).status().With("a limit of workspace");
    options.workspace = bytes.value();
  }
  OOC_ASSIGN(options.busy_gpus, BusyGpusOf(given.busy_gpus));
  OOC_ASSIGN(options.device.borrowed, BorrowedOf(given, options.device.device));
  OOC_TRY(PutPlanning(given, &options));
  options.reproducible = given.reproducible != 0;
  options.trace = given.trace != 0 || Get(Var::kTrace).has_value();
  OOC_ASSIGN(options.math, MathOf(given));
  if (given.host_cap > 0) {
    options.host_cap = given.host_cap;
  } else if (const auto cap = Get(Var::kPinnedLimit)) {
    OOC_ASSIGN(options.host_cap, ParseBytes(*cap));
  }
  return options;
}

// A context of these options. Where it fails, the text names the variables that it was made by.
Result<std::unique_ptr<Context>> MakeContext(const oocdnn_options& given, Math* math) {
  auto options = OptionsOf(given);
  auto made = options.ok() ? Context::Create(options.value())
                           : Result<std::unique_ptr<Context>>(options.status());
  if (!made.ok()) {
    const std::string variables = VariablesOf(given);
    if (variables.empty()) return made;
    return std::move(made).status().With("with " + variables);
  }
  *math = options.value().math;
  return made;
}

void CopyName(const std::string& name, char (&to)[32]) {
  std::memset(to, 0, sizeof to);
  std::memcpy(to, name.data(), std::min(name.size(), sizeof to - 1));
}

oocdnn_stats StatsOf(const CallStats& stats) {
  oocdnn_stats out{};
  out.tiles = stats.run.tiles;
  out.peak_device_bytes = stats.peak_device_bytes;
  out.bytes_h2d = stats.run.bytes_in;
  out.bytes_d2h = stats.run.bytes_out;
  out.device_allocations = stats.device_allocations;
  out.prepared = stats.prepared;
  out.budget_bytes = stats.budget_bytes;
  out.seconds = stats.run.seconds;
  out.fetch_seconds = stats.run.fetch_seconds;
  out.compute_seconds = stats.run.compute_seconds;
  out.drain_seconds = stats.run.drain_seconds;
  const double busy = out.fetch_seconds + out.compute_seconds + out.drain_seconds;
  out.overlap = out.seconds > 0 ? busy / out.seconds : 0.0;
  out.predicted_seconds = stats.predicted_seconds;
  out.planning_seconds = stats.planning_seconds;
  for (int i = 0; i < kAxes; ++i) out.split[i] = stats.split[i];
  CopyName(stats.engine, out.engine);
  return out;
}

// A budget for a device that is not here.
Result<int64_t> BytesOfBudget(const std::string& budget) {
  Result<int64_t> bytes = ParseBytes(budget);
  if (bytes.ok() && bytes.value() > 0) return bytes;
  return Error(Code::kInvalidProblem,
               "a budget of '%s': a profile does not know how much memory is free, so give bytes, "
               "as in 8GiB",
               budget.c_str());
}

}  // namespace

#define OOC_STRING_(x) #x
#define OOC_STRING(x) OOC_STRING_(x)

const char* oocdnn_version(void) {
  return OOC_STRING(OOCDNN_VERSION_MAJOR) "." OOC_STRING(OOCDNN_VERSION_MINOR) "." OOC_STRING(
      OOCDNN_VERSION_PATCH);
}

oocdnn_options oocdnn_default_options(void) { return oocdnn_options{}; }

oocdnn_status oocdnn_create(const oocdnn_options* options, oocdnn_context** context) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the place for the context"));
    *context = nullptr;
    auto made = std::make_unique<oocdnn_context>();
    OOC_ASSIGN(made->context,
               MakeContext(options != nullptr ? *options : oocdnn_default_options(), &made->math));
    *context = made.release();
    return {};
  });
}

void oocdnn_destroy(oocdnn_context* context) {
  static_cast<void>(Guard([&]() -> Status {
    if (context != nullptr && context->context->IsCalledByThisThread()) {
      context->destroyed = true;
    } else {
      delete context;
    }
    return {};
  }));
}

oocdnn_status oocdnn_run(oocdnn_context* context, const oocdnn_convolution* convolution,
                         const oocdnn_operands* operands) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    const CallOn running(context);
    OOC_ASSIGN(const CallArguments call, Translate(convolution, operands, context->math));
    const Progress progress = ProgressOf(convolution->progress, convolution->progress_user);
    return context->context->Run(call.problem, call.tensors, convolution->stream, progress,
                                 {convolution->workspace, convolution->workspace_bytes},
                                 LimitOf(*convolution));
  });
}

oocdnn_status oocdnn_plan(oocdnn_context* context, const char* problem, const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(json, "the place for the plan"));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    OOC_ASSIGN(const Placement placement, ParsePlacement(problem));
    OOC_ASSIGN(const PlanSummary plan, context->context->Plan(parsed, placement));
    *json = Give(ToJson(plan));
    return {};
  });
}

oocdnn_status oocdnn_plan_for_profile(const char* profile, const char* problem, const char* budget,
                                      const char* busy_gpus, const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(profile, "the profile"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(json, "the place for the plan"));
    OOC_ASSIGN(const int64_t bytes, BytesOfBudget(Choose(budget, Var::kBudget, "auto")));
    OOC_ASSIGN(const int busy, ParseBusyGpus(Choose(busy_gpus, Var::kBusyGpus, "0")));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    OOC_ASSIGN(const Placement placement, ParsePlacement(problem));
    OOC_ASSIGN(const PlanSummary plan, PlanForProfile(parsed, placement, profile, bytes, busy));
    *json = Give(ToJson(plan));
    return {};
  });
}

oocdnn_status oocdnn_price(oocdnn_context* context, const char* problem, const char* plan,
                           const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(plan, "the plan"));
    OOC_TRY(Need(json, "the place for the price"));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    OOC_ASSIGN(const Placement placement, ParsePlacement(problem));
    OOC_ASSIGN(const PlanSummary summary, context->context->Price(parsed, placement, plan));
    *json = Give(ToJson(summary));
    return {};
  });
}

oocdnn_status oocdnn_use_plan(oocdnn_context* context, const char* problem, const char* plan) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(plan, "the plan"));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    OOC_ASSIGN(const Placement placement, ParsePlacement(problem));
    return context->context->UsePlan(parsed, placement, plan);
  });
}

oocdnn_status oocdnn_forget_plans(const char** path) {
  return Guard([&]() -> Status {
    OOC_ASSIGN(const ContextOptions options, OptionsOf(oocdnn_default_options()));
    const std::string file = PlanFileOf(options);
    if (path != nullptr) *path = Give(file);
    return file.empty() ? Status() : ForgetPlans(file);
  });
}

oocdnn_status oocdnn_candidates(oocdnn_context* context, const char* problem, int32_t best,
                                int32_t random, int64_t seed, const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(json, "the place for the plans"));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    OOC_ASSIGN(const Placement placement, ParsePlacement(problem));
    OOC_ASSIGN(
        const std::vector<RunnerUp> found,
        context->context->Candidates(parsed, placement, best, random, static_cast<uint64_t>(seed)));
    *json = Give(ToJson(found));
    return {};
  });
}

oocdnn_status oocdnn_plan_in_core(oocdnn_context* context, const oocdnn_convolution* convolution,
                                  const oocdnn_operands* operands, int64_t budget,
                                  int64_t* workspace_bytes) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(workspace_bytes, "the place for the bytes"));
    OOC_TRY(NeedBytes(budget, "the budget"));
    OOC_ASSIGN(const CallArguments call, Translate(convolution, operands, context->math));
    OOC_ASSIGN(*workspace_bytes,
               context->context->PlanInCore(call.problem, budget, LimitOf(*convolution)));
    return {};
  });
}

oocdnn_status oocdnn_problem_text(const oocdnn_convolution* convolution,
                                  const oocdnn_operands* operands, const char** text) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(text, "the place for the text"));
    OOC_ASSIGN(const CallArguments call, Translate(convolution, operands, Math::kFp32));
    OOC_TRY(Validate(call.problem));
    *text = Give(ToString(call.problem));
    return {};
  });
}

oocdnn_status oocdnn_device_name(oocdnn_context* context, const char** name) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(name, "the place for the name"));
    *name = context->context->name().c_str();
    return {};
  });
}

oocdnn_status oocdnn_get_stats(oocdnn_context* context, oocdnn_stats* stats) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(stats, "the place for the stats"));
    *stats = StatsOf(context->context->stats());
    return {};
  });
}

oocdnn_status oocdnn_release(oocdnn_context* context) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    return context->context->Release();
  });
}

oocdnn_status oocdnn_take_trace(oocdnn_context* context, const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(json, "the place for the trace"));
    OOC_ASSIGN(std::string trace, context->context->Trace());
    *json = Give(std::move(trace));
    return {};
  });
}

oocdnn_status oocdnn_calibrate(oocdnn_context* context, oocdnn_progress progress,
                               void* progress_user, const char** path) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    const CallOn running(context);
    OOC_ASSIGN(std::string file, context->context->Calibrate(ProgressOf(progress, progress_user)));
    if (path != nullptr) *path = Give(std::move(file));
    return {};
  });
}

oocdnn_status oocdnn_refine(oocdnn_context* context, const char* problem,
                            const double* compute_seconds, int64_t count, const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(problem, "the problem string"));
    OOC_TRY(Need(compute_seconds, "the seconds"));
    OOC_TRY(Need(json, "the place for what was refined"));
    OOC_TRY(NeedCount(count, "the number of seconds"));
    OOC_ASSIGN(const Problem parsed, ParseProblem(problem));
    const std::vector<double> seconds(compute_seconds, compute_seconds + count);
    OOC_ASSIGN(const Refinement made, context->context->Refine(parsed, seconds));
    *json = Give(ToJson(made));
    return {};
  });
}

oocdnn_status oocdnn_info(oocdnn_context* context, const char** json) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(json, "the place for the text"));
    *json = Give(InfoJson(*context->context));
    return {};
  });
}

oocdnn_status oocdnn_check_reports(oocdnn_context* context, const char** text) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(text, "the place for the text"));
    *text = Give(context->context->CheckReport());
    return {};
  });
}
