#include "base/status.hpp"

#include <cstdarg>
#include <cstdio>

namespace oocdnn {
namespace {

std::string FormatList(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (length <= 0) return {};
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
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

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_unique<Rep>(Rep{code, std::move(message)});
}

Status::Status(const Status& other)
    : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

Status Status::With(std::string_view context) && {
  if (rep_) rep_->message = std::string(context) + ": " + rep_->message;
  return std::move(*this);
}

Status Status::WithDetail(long long detail) && {
  if (rep_) rep_->detail = detail;
  return std::move(*this);
}

Status Error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatList(format, args);
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
