/* What the user is told. */
#pragma once

typedef enum OocLevel { kOocError, kOocWarn } OocLevel;

/* One line, "oocdnn: …", to OOCDNN_LOG_FILE or standard error; what OOCDNN_LOG=error leaves out is
 * not said. */
__attribute__((format(printf, 2, 3))) void ooc_say(OocLevel level, const char* format, ...);
