#include "capi/guard.hpp"

#include <limits>
#include <new>
#include <string>

namespace oocdnn {
namespace {

struct LastError {
  std::string text;
  int64_t detail = 0;
};

LastError& Last() {
  thread_local LastError last;
  return last;
}

}  // namespace

oocdnn_status Report(const Status& status) {
  try {
    Last().text = status.message();
  } catch (const std::bad_alloc&) {
    Last().text.clear();
  }
  Last().detail = status.detail();
  return static_cast<oocdnn_status>(status.code());
}

Status Need(const void* pointer, const char* what) {
  if (pointer != nullptr) return {};
  return Error(Code::kInvalidProblem, "%s is missing (null)", what);
}

Status NeedBytes(int64_t bytes, const char* what) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (bytes >= 0 && bytes <= kMost) return {};
  return Error(Code::kInvalidProblem, "%s cannot be %lld; 0 to 2^60 are possible", what,
               static_cast<long long>(bytes));
}

Status NeedLimit(int64_t limit) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (limit >= -kMost && limit <= kMost) return {};
  return Error(Code::kInvalidProblem, "the limit is %lld bytes; -2^60 to 2^60 are possible",
               static_cast<long long>(limit));
}

Status NeedCount(int64_t count, const char* what) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (count >= 0 && count <= kMost) return {};
  return Error(Code::kInvalidProblem, "%s cannot be %lld; 0 to %lld are possible", what,
               static_cast<long long>(count), static_cast<long long>(kMost));
}

Status NeedPolicy(int32_t policy) {
  if (policy >= OOCDNN_BATCH_POLICY_UNDIVIDED && policy <= OOCDNN_BATCH_POLICY_ALL) return {};
  return Error(Code::kInvalidProblem, "there is no batch policy %d; 0, 1 and 2 are", policy);
}

}  // namespace oocdnn

const char* oocdnn_last_error(void) { return oocdnn::Last().text.c_str(); }
int64_t oocdnn_last_error_detail(void) { return oocdnn::Last().detail; }
