// Every OOCDNN_* environment variable, in one table. An API argument wins over a variable.
#pragma once

#include <optional>
#include <string>

#include "base/status.hpp"

namespace oocdnn {

enum class Var : int {
  kDevice,
  kBudget,
  kThreads,
  kEngine,
  kMath,
  kPinnedLimit,
  kAutoPin,
  kLog,
  kLogFile,
  kProfile,
  kPlans,
  kTrace,
  kOneDnnLibrary,
  kCudnnLibrary,
  kNvrtcLibrary,
  kSqliteLibrary,
  kCache,
  kLink,
  kPlanning,
  kPlanningSeconds,
  kWorkspaceLimit,
  kWorkspaceTotal,
  kBusyGpus,
  kLimit,
  kSpill,
  kPlan,
  kPlanFile,
  kBorrow,
  kBorrowPiece,
  kReport,
  kDisable,
};
constexpr int kVars = 31;

struct VarInfo {
  const char* name;
  const char* values;
  const char* fallback;  // in words
  const char* meaning;
};
const VarInfo& InfoOf(Var var);

// The value of the variable, or nothing where it is unset or empty.
std::optional<std::string> Get(Var var);

// "2GiB", "512 MiB", "1.5GB", "4096" -> bytes.
Result<int64_t> ParseBytes(const std::string& text);

// The bytes of a budget: bytes, a part of the `free` ones in percent, or auto, 80 % of them.
Result<int64_t> ParseBudget(const std::string& text, int64_t free);
// 1.5 GiB, 12.0 MiB, 7 B: for people.
std::string BytesText(int64_t bytes);

}  // namespace oocdnn
