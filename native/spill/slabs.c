/* A slab is a run of pieces, free or taken. The smallest free piece that is large enough serves a
 * request, and neighbours that are free become one. */
#include "spill/slabs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "spill/host_room.h"
#include "spill/pages.h"
#include "spill/settings.h"
#include "spill/sizes.h"

typedef struct Piece {
  char* at;
  size_t bytes;
  size_t slab; /* pieces of different slabs never become one: a copy may not cross them */
  int device;
  bool taken;
} Piece;

static const size_t kAlignment = 512;            /* more than cudaMalloc promises */
static const size_t kSpared = (size_t)512 << 20; /* of the host's memory, for all else */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Piece* pieces; /* in the order of slabs, and of addresses in each */
static size_t count, room, slabs;
static int64_t taken_bytes, taken_peak, pinned_bytes;

/* Room for two more pieces. */
static bool has_room(void) {
  if (count + 2 <= room) return true;
  const size_t more = room == 0 ? 256 : 2 * room;
  Piece* const moved = realloc(pieces, more * sizeof *pieces);
  if (moved == NULL) return false;
  pieces = moved;
  room = more;
  return true;
}

static void insert(size_t place, Piece piece) {
  memmove(pieces + place + 1, pieces + place, (count - place) * sizeof *pieces);
  pieces[place] = piece;
  ++count;
}

static void erase(size_t place) {
  --count;
  memmove(pieces + place, pieces + place + 1, (count - place) * sizeof *pieces);
}

/* The smallest free piece of the device that is large enough; `count` where there is none. */
static size_t best_fit(int device, size_t bytes) {
  size_t best = count;
  for (size_t i = 0; i < count; ++i) {
    if (pieces[i].taken || pieces[i].device != device || pieces[i].bytes < bytes) continue;
    if (best == count || pieces[i].bytes < pieces[best].bytes) best = i;
  }
  return best;
}

/* Whether devices know the memory by the host's address. */
static bool is_pinned(const OocRuntime* real, void* at, size_t bytes) {
  void* device = NULL;
  const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (real->cudaHostRegister(at, bytes, flags) != cudaSuccess) {
    ooc_forget_error(real);
    return false;
  }
  const cudaError_t status = real->cudaHostGetDevicePointer(&device, at, 0);
  if (status == cudaSuccess && device == at) return true;
  real->cudaHostUnregister(at);
  ooc_forget_error(real);
  return false;
}

/* Why there can be no slab of that size, before anything is tried. */
static bool is_short(size_t bytes, OocShortage* shortage) {
  const size_t allowed = ooc_less(ooc_settings()->pinned, (size_t)pinned_bytes);
  *shortage = bytes > allowed ? kOocPinnedLimit : kOocNoRoom;
  return bytes > allowed || bytes > ooc_less(ooc_host_room(), kSpared);
}

/* A new slab, as one free piece, which is the last. */
static bool grow(const OocRuntime* real, int device, size_t request, OocShortage* shortage) {
  const size_t bytes = ooc_rounded(request, ooc_page_bytes());
  if (is_short(bytes, shortage)) return false;
  void* const at = ooc_pages_map(bytes);
  if (at == NULL || !is_pinned(real, at, bytes)) {
    if (at != NULL) ooc_pages_unmap(at, bytes);
    *shortage = kOocNotPinned;
    return false;
  }
  insert(count, (Piece){at, bytes, slabs++, device, false});
  pinned_bytes += (int64_t)bytes;
  return true;
}

static void* take(size_t place, size_t bytes) {
  Piece* const piece = &pieces[place];
  const Piece rest = {piece->at + bytes, piece->bytes - bytes, piece->slab, piece->device, false};
  piece->bytes = bytes;
  piece->taken = true;
  taken_bytes += (int64_t)bytes;
  if (taken_bytes > taken_peak) taken_peak = taken_bytes;
  void* const at = piece->at;
  if (rest.bytes > 0) insert(place + 1, rest);
  return at;
}

void* ooc_slabs_take(const OocRuntime* real, int device, size_t request, OocShortage* shortage) {
  const size_t bytes = ooc_rounded(request, kAlignment);
  void* at = NULL;
  *shortage = kOocNoRoom;
  pthread_mutex_lock(&lock);
  if (has_room()) {
    size_t place = best_fit(device, bytes);
    if (place == count && grow(real, device, bytes, shortage)) place = count - 1;
    if (place < count) at = take(place, bytes);
  }
  pthread_mutex_unlock(&lock);
  return at;
}

/* Joins the piece with the one behind it, where both are free and of one slab. */
static void join(size_t place) {
  if (place + 1 >= count) return;
  Piece* const piece = &pieces[place];
  const Piece* const next = piece + 1;
  if (piece->taken || next->taken || piece->slab != next->slab) return;
  piece->bytes += next->bytes;
  erase(place + 1);
}

void ooc_slabs_give(void* at) {
  pthread_mutex_lock(&lock);
  size_t place = 0;
  while (place < count && pieces[place].at != (char*)at) ++place;
  if (place < count) {
    pieces[place].taken = false;
    taken_bytes -= (int64_t)pieces[place].bytes;
    join(place);
    if (place > 0) join(place - 1);
  }
  pthread_mutex_unlock(&lock);
}

static bool is_whole(size_t place) {
  const Piece* const piece = &pieces[place];
  if (piece->taken || (place > 0 && piece[-1].slab == piece->slab)) return false;
  return place + 1 == count || piece[1].slab != piece->slab;
}

/* What the runtime does not unpin stays mapped: a device would write to others' pages. */
static size_t drop(const OocRuntime* real, size_t place) {
  const Piece slab = pieces[place];
  erase(place);
  pinned_bytes -= (int64_t)slab.bytes;
  if (real->cudaHostUnregister(slab.at) != cudaSuccess) {
    ooc_forget_error(real);
    return 0;
  }
  ooc_pages_unmap(slab.at, slab.bytes);
  return slab.bytes;
}

size_t ooc_slabs_trim(const OocRuntime* real, int device, size_t bytes) {
  size_t dropped = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = count; i > 0 && dropped < bytes; --i) {
    const bool wanted = device < 0 || pieces[i - 1].device == device;
    if (wanted && is_whole(i - 1)) dropped += drop(real, i - 1);
  }
  pthread_mutex_unlock(&lock);
  return dropped;
}

void ooc_slabs_figures(int64_t* taken, int64_t* peak, int64_t* pinned) {
  pthread_mutex_lock(&lock);
  *taken = taken_bytes;
  *peak = taken_peak;
  *pinned = pinned_bytes;
  pthread_mutex_unlock(&lock);
}
