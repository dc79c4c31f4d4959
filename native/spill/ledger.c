#include "spill/ledger.h"

#include <pthread.h>

#include "spill/settings.h"
#include "spill/sizes.h"

typedef struct Held {
  size_t bytes, small, peak;
  size_t others;  /* not requested */
  size_t foreign; /* other processes' */
  bool seen;
  uint64_t changes;
} Held;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Held held[kDevices];

/* What the program and those whom nobody asked have together. */
static size_t both(void) { return ooc_settings()->limit - ooc_settings()->budget; }

bool ooc_ledger_is_small(size_t bytes) { return bytes < ooc_least((size_t)32 << 20, both() / 64); }

static bool is_counted(int device) { return device >= 0 && device < kDevices; }

/* What large requests leave for small ones that are still to come. */
static size_t kept(const Held* one) {
  return ooc_less(ooc_least((size_t)1 << 29, both() / 32), one->small);
}

static size_t share(const Held* one) { return ooc_less(both(), one->others); }

static bool fits(const Held* one, size_t bytes) {
  const size_t room = ooc_less(share(one), one->bytes);
  const size_t reserve = ooc_ledger_is_small(bytes) ? 0 : kept(one);
  return bytes <= room && reserve <= room - bytes;
}

bool ooc_ledger_book(int device, size_t bytes) {
  if (!is_counted(device)) return true;
  Held* const one = &held[device];
  pthread_mutex_lock(&lock);
  const bool booked = fits(one, bytes);
  if (booked) {
    ++one->changes;
    one->bytes += bytes;
    if (ooc_ledger_is_small(bytes)) one->small += bytes;
    one->peak = ooc_most(one->peak, one->bytes);
  }
  pthread_mutex_unlock(&lock);
  return booked;
}

void ooc_ledger_return(int device, size_t bytes) {
  if (!is_counted(device)) return;
  Held* const one = &held[device];
  pthread_mutex_lock(&lock);
  ++one->changes;
  one->bytes -= bytes;
  if (ooc_ledger_is_small(bytes)) one->small -= bytes;
  pthread_mutex_unlock(&lock);
}

static size_t unseen(void) { return ooc_settings()->limit / 8; }

static bool is_near(const Held* one, size_t bytes) {
  const size_t room = ooc_less(share(one), one->bytes);
  return bytes > room || kept(one) + unseen() > room - bytes;
}

bool ooc_ledger_wants_look(int device, size_t bytes) {
  if (!is_counted(device)) return false;
  const Held* const one = &held[device];
  pthread_mutex_lock(&lock);
  const bool wanted = !one->seen || is_near(one, bytes);
  pthread_mutex_unlock(&lock);
  return wanted;
}

OocLook ooc_ledger_look(int device) {
  OocLook look = {.process = SIZE_MAX};
  if (!is_counted(device)) return look;
  pthread_mutex_lock(&lock);
  look.changes = held[device].changes;
  look.first = !held[device].seen;
  pthread_mutex_unlock(&lock);
  return look;
}

/* What other processes have, of what the ledger does not know. */
static size_t foreign_of(const Held* one, const OocLook* look, size_t unknown) {
  const size_t beyond = ooc_less(unknown, unseen());
  if (one->seen) return ooc_least(one->foreign, beyond);
  return look->process != SIZE_MAX ? ooc_least(ooc_less(look->used, look->process), unknown)
                                   : beyond;
}

void ooc_ledger_see(int device, const OocLook* look) {
  if (!is_counted(device)) return;
  Held* const one = &held[device];
  pthread_mutex_lock(&lock);
  if (look->changes == one->changes) {
    const size_t unknown = ooc_less(look->used, ooc_plus(one->bytes, look->own));
    one->foreign = foreign_of(one, look, unknown);
    one->others = unknown - one->foreign;
    one->seen = true;
  }
  pthread_mutex_unlock(&lock);
}

size_t ooc_ledger_share(int device, size_t* room) {
  *room = SIZE_MAX;
  if (!is_counted(device)) return SIZE_MAX;
  pthread_mutex_lock(&lock);
  const size_t bytes = share(&held[device]);
  *room = ooc_less(bytes, held[device].bytes);
  pthread_mutex_unlock(&lock);
  return bytes;
}

void ooc_ledger_figures(int64_t* bytes, int64_t* peak, int64_t* others) {
  Held top = {0};
  pthread_mutex_lock(&lock);
  for (int i = 0; i < kDevices; ++i) {
    top.bytes = ooc_most(top.bytes, held[i].bytes);
    top.peak = ooc_most(top.peak, held[i].peak);
    top.others = ooc_most(top.others, held[i].others);
  }
  pthread_mutex_unlock(&lock);
  *bytes = (int64_t)top.bytes;
  *peak = (int64_t)top.peak;
  *others = (int64_t)top.others;
}
