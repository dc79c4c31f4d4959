/* What host memory costs is measured once, by the device as it writes the first block: a kernel
 * that reads or writes host memory is bound by the same wire. */
#include "spill/lines.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "spill/settings.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double seconds_to_write(const OocRuntime* real, void* block, size_t bytes,
                               cudaStream_t stream) {
  const double begin = now();
  if (real->cudaMemsetAsync(block, 0, bytes, stream) != cudaSuccess) return 0;
  return real->cudaStreamSynchronize(stream) == cudaSuccess ? now() - begin : 0;
}

/* Bytes in a second; 0 where it cannot be measured. */
static double wire_rate(const OocRuntime* real, void* block, size_t bytes) {
  const size_t most = (size_t)64 << 20;
  const size_t part = bytes < most ? bytes : most;
  cudaStream_t stream = NULL;
  if (real->cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return 0;
  seconds_to_write(real, block, part, stream); /* the first one opens what it needs */
  const double seconds = seconds_to_write(real, block, part, stream);
  real->cudaStreamDestroy(stream);
  return seconds > 0 ? (double)part / seconds : 0;
}

static void say(double limit, double bytes, double rate) {
  char cost[128] = "";
  if (rate > 0) {
    snprintf(cost, sizeof cost, ": whatever reads or writes 1 GiB of it takes %.3g ms (%.3g GB/s)",
             0x1p30 / rate * 1e3, rate / 1e9);
  }
  fprintf(stderr,
          "oocdnn: past the limit of %.2f GiB requests are served from host memory, first one of "
          "%.3g MiB%s; OOCDNN_DISABLE=1 prevents it\n",
          limit / 0x1p30, bytes / 0x1p20, cost);
}

void ooc_say_spilled(const OocRuntime* real, void* block, size_t bytes) {
  static bool said;
  pthread_mutex_lock(&lock);
  const bool first = !said;
  said = true;
  pthread_mutex_unlock(&lock);
  if (first) say((double)ooc_settings()->limit, (double)bytes, wire_rate(real, block, bytes));
}
