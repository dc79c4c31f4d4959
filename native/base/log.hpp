// One-line log messages at four levels, to standard error or OOCDNN_LOG_FILE. Level from
// OOCDNN_LOG, read once. A message below the level costs one comparison.
#pragma once

namespace oocdnn {

enum class LogLevel : int { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

bool Logs(LogLevel level);
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

}  // namespace oocdnn
