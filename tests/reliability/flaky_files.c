/* pread and pwrite that misbehave when told to, for LD_PRELOAD. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long until_failure, most_bytes, transfers;

/* The transfer number `fail_at` fails with EIO (0: none does). No transfer moves more than `most`
 * bytes (0: no limit), and with a limit every third is interrupted. */
void flaky_files(long fail_at, long most) {
  until_failure = fail_at;
  most_bytes = most;
  transfers = 0;
}

static ssize_t transfer(long call, int fd, void* memory, size_t bytes, off_t offset) {
  const long number = ++transfers, most = most_bytes;
  if (number == until_failure) {
    errno = EIO;
    return -1;
  }
  if (most > 0 && number % 3 == 0) {
    errno = EINTR;
    return -1;
  }
  if (most > 0 && bytes > (size_t)most) bytes = (size_t)most;
  return syscall(call, fd, memory, bytes, offset);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  return transfer(SYS_pread64, fd, to, bytes, offset);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  return transfer(SYS_pwrite64, fd, (void*)from, bytes, offset);
}

ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) {
  return pread(fd, to, bytes, offset);
}

ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t offset) {
  return pwrite(fd, from, bytes, offset);
}
