/* A list in the order of addresses: programs that cache their memory hold hundreds of blocks. */
#include "spill/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static OocBlock* blocks;
static size_t count, room;

/* How many blocks begin at or before the address. */
static size_t up_to(const char* address) {
  size_t low = 0;
  size_t high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (blocks[middle].at <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static bool has_room(void) {
  if (count < room) return true;
  const size_t more = room == 0 ? 256 : 2 * room;
  OocBlock* const moved = realloc(blocks, more * sizeof *blocks);
  if (moved == NULL) return false;
  blocks = moved;
  room = more;
  return true;
}

bool ooc_blocks_add(OocBlock block) {
  pthread_mutex_lock(&lock);
  const bool added = has_room();
  if (added) {
    const size_t place = up_to(block.at);
    memmove(blocks + place + 1, blocks + place, (count - place) * sizeof *blocks);
    blocks[place] = block;
    ++count;
  }
  pthread_mutex_unlock(&lock);
  return added;
}

static void erase(size_t place) {
  --count;
  memmove(blocks + place, blocks + place + 1, (count - place) * sizeof *blocks);
}

bool ooc_blocks_take(const void* at, OocBlock* block) {
  pthread_mutex_lock(&lock);
  const size_t place = up_to(at);
  const bool found = place > 0 && blocks[place - 1].at == (const char*)at;
  if (found) {
    *block = blocks[place - 1];
    erase(place - 1);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

bool ooc_blocks_take_any(int device, bool on_host, OocBlock* block) {
  pthread_mutex_lock(&lock);
  size_t place = 0;
  while (place < count && (blocks[place].device != device || blocks[place].on_host != on_host)) {
    ++place;
  }
  const bool found = place < count;
  if (found) {
    *block = blocks[place];
    erase(place);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

bool ooc_blocks_find(const void* address, OocBlock* block) {
  pthread_mutex_lock(&lock);
  const size_t place = up_to(address);
  const bool found =
      place > 0 && (size_t)((const char*)address - blocks[place - 1].at) < blocks[place - 1].bytes;
  if (found) *block = blocks[place - 1];
  pthread_mutex_unlock(&lock);
  return found;
}
