#include "base/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/numbers.hpp"

namespace oocdnn {
namespace {

constexpr std::array<VarInfo, kVars> kTable{{
    {"OOCDNN_DEVICE", "auto, cpu, cuda:N, or several separated by commas", "auto",
     "the device of new contexts"},
    {"OOCDNN_BUDGET", "bytes, 2GiB, 50%, auto", "auto; in the drop-in 2GiB",
     "device bytes that a context may book"},
    {"OOCDNN_THREADS", "a number", "all cores of the process",
     "threads of the CPU device, and of staging for a GPU"},
    {"OOCDNN_ENGINE", "cudnn, onednn, depthwise, fp32x3, direct, reference",
     "the fastest that serves", "the only engine to use"},
    {"OOCDNN_MATH", "fp32, tf32, fp32x3, fp32_fast", "fp32",
     "what float32 is computed in where a program asks for fp32, or for nothing"},
    {"OOCDNN_PINNED_LIMIT", "bytes", "1GiB; with a GPU a quarter of what is free",
     "host bytes for staging, and as many each for arrays and results pinned unasked, and past a "
     "limit"},
    {"OOCDNN_AUTO_PIN", "0, 1", "1",
     "whether arrays used again, results, and operands for a call, are pinned unasked"},
    {"OOCDNN_LOG", "error, warn, info, debug", "warn", "what is logged"},
    {"OOCDNN_LOG_FILE", "a path", "standard error", "where it is logged"},
    {"OOCDNN_PROFILE", "a path", "the user's cache directory", "file with the machine's constants"},
    {"OOCDNN_PLANS", "a path, none", "the user's cache directory", "file of remembered plans"},
    {"OOCDNN_TRACE", "a path", "none", "Chrome trace JSON, written when a context is destroyed"},
    {"OOCDNN_ONEDNN_LIBRARY", "a path", "beside the core library", "the oneDNN plug-in"},
    {"OOCDNN_CUDNN_LIBRARY", "a path", "pip's or the system's", "libcudnn.so.9 of the GPU"},
    {"OOCDNN_NVRTC_LIBRARY", "a path", "pip's or the system's",
     "libnvrtc.so, which compiles kernels where none are built in"},
    {"OOCDNN_SQLITE_LIBRARY", "a path", "the system's",
     "libsqlite3.so.0, without which plans are not remembered"},
    {"OOCDNN_CACHE", "a path", "the user's cache directory",
     "folder for kernels compiled on this machine"},
    {"OOCDNN_LINK", "GB/s", "none", "the CPU device behind a wire of this rate per direction"},
    {"OOCDNN_PLANNING", "estimate, gradual, measure, exhaustive",
     "estimate; the drop-in's: gradual",
     "how plans are chosen: by the model, by the model and better with further calls, by timed "
     "runs of the best few, among all tile lengths"},
    {"OOCDNN_PLANNING_SECONDS", "a number", "10",
     "what a plan may take that is measured or looked for exhaustively"},
    {"OOCDNN_WORKSPACE_LIMIT", "bytes", "none",
     "the most device bytes of an engine's workspace; batches are divided for engines that want "
     "more"},
    {"OOCDNN_WORKSPACE_TOTAL", "bytes", "none",
     "the drop-in's: divided among the layers of a program, so that all together are the fastest"},
    {"OOCDNN_BUSY_GPUS", "0 to 63", "of LOCAL_WORLD_SIZE all but one, else 0",
     "how many other GPUs of the host are busy too, beside which wires are slower"},
    {"OOCDNN_LIMIT", "bytes", "none",
     "set by `oocdnn run --limit`: device bytes of the whole process, the budget among them"},
    {"OOCDNN_SPILL", "host, refuse", "none",
     "set by `oocdnn run --limit`: where what passes the limit goes"},
    {"OOCDNN_PLAN", "1", "none",
     "set by `oocdnn run --limit`: training by PyTorch is planned within the limit"},
    {"OOCDNN_PLAN_FILE", "a path", "none",
     "set by `oocdnn run --plan-file`: plans of training, taken from it and written to it"},
    {"OOCDNN_BORROW", "GPUs", "none",
     "other GPUs over whose links copies with host memory go too, as cuda:1,cuda:2; set by `oocdnn "
     "run --borrow`, with bytes that they lend to planned training, as cuda:1=40GiB"},
    {"OOCDNN_BORROW_PIECE", "bytes", "8MiB",
     "of the largest piece of a copy that goes over several links; each stream of copies holds "
     "three "
     "pieces in another GPU's memory"},
    {"OOCDNN_REPORT", "a path", "none",
     "set by `oocdnn run --report`: the page about the plan, written at the program's end"},
    {"OOCDNN_DISABLE", "1", "off",
     "the drop-in hands every call to the real cuDNN, and no limit is kept"},
}};

constexpr std::string_view kSpaces = " \t\n\v\f\r";

}  // namespace

const VarInfo& InfoOf(Var var) { return kTable[static_cast<size_t>(var)]; }

std::optional<std::string> Get(Var var) {
  const char* value = std::getenv(InfoOf(var).name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<int64_t> ParseBytes(const std::string& text) {
  double number = 0.0;
  std::string_view unit = text;
  const bool numeric = TakeNumber(&unit, &number);
  unit.remove_prefix(std::min(unit.find_first_not_of(kSpaces), unit.size()));
  struct Unit {
    const char* name;
    double bytes;
  };
  static constexpr Unit kUnits[] = {
      {"", 1.0},       {"B", 1.0},      {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
      {"T", 0x1p40},   {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
  };
  for (const Unit& candidate : kUnits) {
    if (unit != candidate.name) continue;
    const double bytes = number * candidate.bytes;
    if (!numeric || !std::isfinite(bytes) || bytes > 0x1p60) break;
    return static_cast<int64_t>(bytes);
  }
  return Error(Code::kInvalidProblem,
               "'%s' is not a number of bytes; write 4096, 512MiB, 2GiB or 1.5GB", text.c_str());
}

Result<int64_t> ParseBudget(const std::string& text, int64_t free) {
  if (text.empty() || text == "auto") return free / 5 * 4;
  if (text.back() == '%') {
    double percent = 0.0;
    std::string_view rest = text;
    const bool numeric = TakeNumber(&rest, &percent);
    const bool whole = rest.find_first_not_of(kSpaces) == rest.size() - 1;
    if (!numeric || !whole || std::isnan(percent) || percent <= 0 || percent > 100) {
      return Error(Code::kInvalidProblem, "a budget of '%s': write 1%% to 100%%", text.c_str());
    }
    return static_cast<int64_t>(static_cast<double>(free) * percent / 100.0);
  }
  return ParseBytes(text);
}

std::string BytesText(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 0x1p40) return Format("%.2f TiB", value / 0x1p40);
  if (value >= 0x1p30) return Format("%.2f GiB", value / 0x1p30);
  if (value >= 0x1p20) return Format("%.1f MiB", value / 0x1p20);
  if (value >= 0x1p10) return Format("%.1f KiB", value / 0x1p10);
  return Format("%lld B", static_cast<long long>(bytes));
}

}  // namespace oocdnn
