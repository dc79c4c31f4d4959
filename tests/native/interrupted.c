// Preloaded: every other pread and pwrite is interrupted by a signal, and the others move half of
// what is asked for.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/types.h>

typedef ssize_t Transfer(int, void*, size_t, off_t);

atomic_int interrupted;

static ssize_t Interrupted(const char* name, int fd, void* memory, size_t bytes, off_t offset) {
  static _Thread_local int calls;
  if (++calls % 2 == 1) {
    ++interrupted;
    errno = EINTR;
    return -1;
  }
  Transfer* const real = (Transfer*)dlsym(RTLD_NEXT, name);
  return real(fd, memory, bytes > 1 ? bytes / 2 : bytes, offset);
}

ssize_t pread(int fd, void* memory, size_t bytes, off_t offset) {
  return Interrupted("pread", fd, memory, bytes, offset);
}

ssize_t pwrite(int fd, const void* memory, size_t bytes, off_t offset) {
  return Interrupted("pwrite", fd, (void*)memory, bytes, offset);
}
