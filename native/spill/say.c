/* Follows the same variables as the core's log, which may not be loaded. */
#include "spill/say.h"

#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLine = 1024 };

/* One write, so that lines of several threads and processes do not mix. */
static void put(const char* line, size_t length) {
  const char* const path = getenv("OOCDNN_LOG_FILE");
  const int named = path != NULL && *path != '\0'
                        ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666)
                        : -1; /* of a pipe that nobody reads -1 too */
  const ssize_t written = write(named >= 0 ? named : STDERR_FILENO, line, length);
  (void)written;
  if (named >= 0) close(named);
}

/* vsnprintf in the C locale: the program's decimal separator may be a comma. */
static void format_to(char* text, size_t bytes, const char* format, va_list values) {
  const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* static in glibc, never freed */
  const locale_t before = uselocale(c);
  vsnprintf(text, bytes, format, values);
  uselocale(before);
}

void ooc_format(char* text, size_t bytes, const char* format, ...) {
  va_list values;
  va_start(values, format);
  format_to(text, bytes, format, values);
  va_end(values);
}

void ooc_say(OocLevel level, const char* format, ...) {
  const char* const least = getenv("OOCDNN_LOG");
  if (level > kOocError && least != NULL && strcmp(least, "error") == 0) return;
  char line[kLine] = "oocdnn: ";
  const size_t head = strlen(line);
  va_list values;
  va_start(values, format);
  format_to(line + head, sizeof line - head - 1, format, values);
  va_end(values);
  const size_t length = strlen(line);
  line[length] = '\n';
  put(line, length + 1);
}
