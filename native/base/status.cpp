#include "base/status.hpp"

#include <cstdarg>
#include <new>

#include "base/numbers.hpp"

namespace oocdnn {
namespace {

// Short enough to lie in the string itself.
constexpr const char* kNoMemory = "no host memory";

std::string FormatList(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int length = FormatTo(nullptr, 0, format, copy);
  va_end(copy);
  if (length <= 0) return {};
  std::string text(static_cast<size_t>(length), '\0');
  FormatTo(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidProblem: return "invalid problem";
    case Code::kInvalidDtype: return "invalid dtype";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kUnsupported: return "unsupported";
    case Code::kDeviceError: return "device error";
    case Code::kInterrupted: return "interrupted";
    case Code::kFileError: return "file error";
    case Code::kInternal: return "internal error";
  }
  return "unknown";
}

// Shared by all that it serves.
Status::Rep* Status::NoMemory() {
  static Rep rep{Code::kOutOfMemory, kNoMemory};
  return &rep;
}

void Status::Drop::operator()(Rep* rep) const {
  if (rep != NoMemory()) delete rep;
}

Status::OwnedRep Status::Copy(const Rep& rep) {
  try {
    return OwnedRep(new Rep(rep));
  } catch (const std::bad_alloc&) {
    return OwnedRep(NoMemory());
  }
}

Status::Status(Code code, std::string message) {
  if (code == Code::kOk) return;
  rep_.reset(new (std::nothrow) Rep{code, std::move(message)});
  if (rep_ == nullptr) rep_.reset(NoMemory());
}

Status::Status(const Status& other) : rep_(other.rep_ ? Copy(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? Copy(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

Status Status::With(std::string_view context) && {
  if (rep_ == nullptr || rep_.get() == NoMemory()) return std::move(*this);
  try {
    rep_->message = std::string(context) + ": " + rep_->message;
  } catch (const std::bad_alloc&) {
    return std::move(*this);  // with the text as it is
  }
  return std::move(*this);
}

Status Status::WithDetail(long long detail) && {
  if (rep_ != nullptr && rep_.get() != NoMemory()) rep_->detail = detail;
  return std::move(*this);
}

Status Error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text;
  try {
    text = FormatList(format, args);
  } catch (const std::bad_alloc&) {
    code = Code::kOutOfMemory;
    text = kNoMemory;
  }
  va_end(args);
  return {code, std::move(text)};
}

std::string Format(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatList(format, args);
  va_end(args);
  return text;
}

}  // namespace oocdnn
