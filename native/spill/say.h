/* What the user is told. */
#pragma once

#include <stddef.h>

typedef enum OocLevel { kOocError, kOocWarn } OocLevel;

/* snprintf in the C locale. */
__attribute__((format(printf, 3, 4))) void ooc_format(char* text, size_t bytes, const char* format,
                                                      ...);

/* One line, "oocdnn: …", to OOCDNN_LOG_FILE or standard error; what OOCDNN_LOG=error leaves out is
 * not said. */
__attribute__((format(printf, 2, 3))) void ooc_say(OocLevel level, const char* format, ...);
