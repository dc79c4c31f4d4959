/* Pinning pages that are not there yet goes at 2 GB/s, so several threads touch them before. */
#include "spill/pages.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spill/sizes.h"

enum { kThreads = 12 };
static const size_t kHuge = (size_t)2 << 20;

typedef struct Part {
  volatile char* at;
  size_t bytes;
} Part;

size_t ooc_page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void* touch(void* argument) {
  const Part* const part = argument;
  const size_t page = ooc_page_bytes();
  for (size_t i = 0; i < part->bytes; i += page) part->at[i] = 0;
  return NULL;
}

static size_t threads_for(size_t bytes) {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const size_t most = bytes / ((size_t)16 << 20) + 1;
  const size_t wanted = cores < kThreads ? (size_t)cores : kThreads;
  return wanted < most ? wanted : most;
}

static void touch_all(char* at, size_t bytes) {
  const size_t threads = threads_for(bytes);
  const size_t step = (bytes / threads + kHuge) & ~(kHuge - 1);
  Part parts[kThreads];
  pthread_t ids[kThreads];
  bool started[kThreads] = {false};
  for (size_t i = 0; i < threads; ++i) {
    const size_t from = i * step < bytes ? i * step : bytes;
    parts[i] = (Part){at + from, bytes - from < step ? bytes - from : step};
    started[i] = pthread_create(&ids[i], NULL, touch, &parts[i]) == 0;
    if (!started[i]) touch(&parts[i]);
  }
  for (size_t i = 0; i < threads; ++i) {
    if (started[i]) pthread_join(ids[i], NULL);
  }
}

void* ooc_pages_map(size_t bytes) {
  char* const wide = mmap(NULL, ooc_plus(bytes, kHuge), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return NULL;
  char* const at = (char*)(((uintptr_t)wide + kHuge - 1) & ~(uintptr_t)(kHuge - 1));
  if (at > wide) munmap(wide, (size_t)(at - wide));
  if (at < wide + kHuge) munmap(at + bytes, (size_t)(wide + kHuge - at));
  madvise(at, bytes, MADV_HUGEPAGE);
  madvise(at, bytes, MADV_DONTFORK);
  touch_all(at, bytes);
  return at;
}

void ooc_pages_unmap(void* at, size_t bytes) { munmap(at, bytes); }
