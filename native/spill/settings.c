#include "spill/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "spill/say.h"

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
  errno = 0;
  const long long number = strtoll(value, &end, 10);
  *bytes = number > 0 ? (size_t)number : 0;
  return *value != '\0' && *end == '\0' && number >= 0 && errno == 0;
}

static bool pinned_of(size_t* bytes) {
  *bytes = SIZE_MAX;
  return *value_of("OOCDNN_PINNED_LIMIT") == '\0' || bytes_of("OOCDNN_PINNED_LIMIT", bytes);
}

static void read_settings(void) {
  const char* const spill = value_of("OOCDNN_SPILL");
  if (is_on("OOCDNN_DISABLE") || *value_of("OOCDNN_LIMIT") == '\0' || *spill == '\0') return;
  settings.refuse = strcmp(spill, "refuse") == 0;
  const bool makes_sense = bytes_of("OOCDNN_LIMIT", &settings.limit) &&
                           bytes_of("OOCDNN_BUDGET", &settings.budget) &&
                           settings.budget < settings.limit && pinned_of(&settings.pinned) &&
                           (settings.refuse || strcmp(spill, "host") == 0);
  atomic_store(&settings.on, makes_sense);
  if (makes_sense) return;
  ooc_say(kOocError,
          "no limit is kept: OOCDNN_LIMIT=%s, OOCDNN_BUDGET=%s, OOCDNN_PINNED_LIMIT=%s, "
          "OOCDNN_SPILL=%s; oocdnn run --limit 16GiB --spill sets them",
          value_of("OOCDNN_LIMIT"), value_of("OOCDNN_BUDGET"), value_of("OOCDNN_PINNED_LIMIT"),
          spill);
}

const OocSettings* ooc_settings(void) {
  pthread_once(&read_once, read_settings);
  return &settings;
}

void ooc_settings_end(void) {
  if (ooc_settings()->refuse) atomic_store(&settings.on, false);
}
