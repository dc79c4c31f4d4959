/* What `oocdnn run --limit … --spill` hands on in variables. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct OocSettings {
  atomic_bool on; /* a limit is set, and nothing says otherwise */
  bool refuse;    /* what passes the limit is refused, not served from host memory */
  size_t limit;   /* device bytes of the whole process: the program's and oocdnn's */
  size_t budget;  /* what of them is oocdnn's own, which the program does not get */
  size_t pinned;  /* the most that may be pinned for host memory */
} OocSettings;

/* OOCDNN_LIMIT, OOCDNN_BUDGET and, if it is set, OOCDNN_PINNED_LIMIT, numbers of bytes;
 * OOCDNN_SPILL, "host" or "refuse". Off with OOCDNN_DISABLE=1, without a limit, and, with one line,
 * where they make no sense. Read once. */
const OocSettings* ooc_settings(void);

/* Requests pass from now on. Only where what passes the limit is refused: what is served from host
 * memory has to be known until its end. */
void ooc_settings_end(void);
