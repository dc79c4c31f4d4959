#include "spill/settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t read_once = PTHREAD_ONCE_INIT;
static OocSettings settings;

static const char* value_of(const char* variable) {
  const char* const value = getenv(variable);
  return value != NULL ? value : "";
}

static bool is_on(const char* variable) {
  const char* const value = value_of(variable);
  return *value != '\0' && strcmp(value, "0") != 0;
}

/* False where the variable is no number of bytes. */
static bool bytes_of(const char* variable, size_t* bytes) {
  const char* const value = value_of(variable);
  char* end = NULL;
  const long long number = strtoll(value, &end, 10);
  *bytes = number > 0 ? (size_t)number : 0;
  return *value != '\0' && *end == '\0' && number >= 0;
}

static void read_settings(void) {
  const char* const spill = value_of("OOCDNN_SPILL");
  if (is_on("OOCDNN_DISABLE") || *value_of("OOCDNN_LIMIT") == '\0' || *spill == '\0') return;
  settings.refuse = strcmp(spill, "refuse") == 0;
  settings.on = bytes_of("OOCDNN_LIMIT", &settings.limit) &&
                bytes_of("OOCDNN_BUDGET", &settings.budget) && settings.budget < settings.limit &&
                (settings.refuse || strcmp(spill, "host") == 0);
  if (settings.on) return;
  fprintf(stderr,
          "oocdnn: no limit is kept: OOCDNN_LIMIT=%s, OOCDNN_BUDGET=%s, OOCDNN_SPILL=%s; "
          "oocdnn run --limit 16GiB --spill sets them\n",
          value_of("OOCDNN_LIMIT"), value_of("OOCDNN_BUDGET"), spill);
}

const OocSettings* ooc_settings(void) {
  pthread_once(&read_once, read_settings);
  return &settings;
}
