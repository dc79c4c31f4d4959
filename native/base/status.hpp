// Status: what happened, with the numbers and the next step; Result: a value or a Status.
//
// A function that can fail returns one of the two. Context is added on the way up with With(), so
// that the text a user reads runs from the call that failed to the cause. Nothing of a Status
// throws: one that there is no memory for is a kOutOfMemory that needs none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace oocdnn {

// The kinds of failure that a caller can tell apart. The values are those of the C API.
enum class Code : int {
  kOk = 0,
  kInvalidProblem = 1,  // shapes, strides, parameters, overlapping or short operands
  kInvalidDtype = 2,    // an element type that is unknown, or types that do not go together
  kOutOfMemory = 3,     // budget, device or host memory; the text says needed, allowed, least
  kUnsupported = 4,     // well formed, but no engine or device does it; the text says what would
  kDeviceError = 5,     // the device or its library reported a failure
  kInterrupted = 6,     // the caller asked for the end of the call
  kFileError = 7,       // reading or writing an operand that lives in a file
  kInternal = 8,        // a broken promise of ours
};

const char* CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  [[nodiscard]] bool ok() const { return rep_ == nullptr; }
  [[nodiscard]] Code code() const { return rep_ ? rep_->code : Code::kOk; }
  // The whole chain, outermost context first; empty when ok.
  [[nodiscard]] const std::string& message() const;
  // A numeric fact that travels beside the text: for kOutOfMemory the least bytes that would work.
  [[nodiscard]] long long detail() const { return rep_ ? rep_->detail : 0; }

  // This status with `context` put in front of its text; ok stays ok.
  Status With(std::string_view context) &&;
  // Becomes `next` if this is no error yet: of several, the first is kept.
  void KeepFirst(Status next) {
    if (ok()) *this = std::move(next);
  }
  Status WithDetail(long long detail) &&;

 private:
  struct Rep {
    Code code;
    std::string message;
    long long detail = 0;
  };
  struct Drop {
    void operator()(Rep* rep) const;
  };
  using OwnedRep = std::unique_ptr<Rep, Drop>;
  static Rep* NoMemory();
  static OwnedRep Copy(const Rep& rep);
  OwnedRep rep_;
};

// printf-style construction: Error(Code::kInvalidProblem, "x has rank %d", rank).
[[gnu::format(printf, 2, 3)]] Status Error(Code code, const char* format, ...);

// printf into a std::string.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const& { return status_; }
  [[nodiscard]] Status status() && { return std::move(status_); }
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define OOC_CONCAT_(a, b) a##b
#define OOC_CONCAT(a, b) OOC_CONCAT_(a, b)

// Returns from the enclosing function when `expr` is not ok.
#define OOC_TRY(expr)                                                                 \
  do {                                                                                \
    if (::oocdnn::Status ooc_status_ = (expr); !ooc_status_.ok()) return ooc_status_; \
  } while (false)

// OOC_ASSIGN(auto plan, Plan(...)): declares or assigns, or returns the Status.
#define OOC_ASSIGN(target, expr) OOC_ASSIGN_(OOC_CONCAT(ooc_result_, __LINE__), target, expr)
#define OOC_ASSIGN_(result, target, expr)              \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  target = std::move(result).value()

}  // namespace oocdnn
