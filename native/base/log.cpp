#include "base/log.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/config.hpp"
#include "base/files.hpp"
#include "base/numbers.hpp"

namespace oocdnn {
namespace {

// Opened once and kept: the process's end closes it.
std::FILE* Destination() {
  static std::FILE* file = [] {
    const auto path = Get(Var::kLogFile);
    const int fd = path ? OpenForWriting(path->c_str(), O_APPEND) : -1;
    std::FILE* const opened = fd >= 0 ? fdopen(fd, "a") : nullptr;
    if (path && opened == nullptr) {
      std::fprintf(stderr, "oocdnn: OOCDNN_LOG_FILE: %s cannot be written to: %s\n", path->c_str(),
                   std::strerror(errno));
    }
    return opened != nullptr ? opened : stderr;
  }();
  return file;
}

LogLevel Level() {
  static const LogLevel level = [] {
    const std::string text = Get(Var::kLog).value_or("warn");
    if (text == "error") return LogLevel::kError;
    if (text == "info") return LogLevel::kInfo;
    if (text == "debug") return LogLevel::kDebug;
    if (text != "warn") {
      std::fprintf(Destination(), "oocdnn: OOCDNN_LOG is '%s', not one of %s: warn is taken\n",
                   text.c_str(), InfoOf(Var::kLog).values);
    }
    return LogLevel::kWarn;
  }();
  return level;
}

}  // namespace

bool Logs(LogLevel level) { return level <= Level(); }

void Log(LogLevel level, const char* format, ...) {
  if (!Logs(level)) return;
  va_list args;
  va_start(args, format);
  char line[2048];
  FormatTo(line, sizeof line, format, args);
  va_end(args);
  // One write, so that lines of several threads and processes do not mix.
  std::fprintf(Destination(), "oocdnn: %s\n", line);
  std::fflush(Destination());
}

}  // namespace oocdnn
