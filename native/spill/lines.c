/* What host memory costs is measured once, by the device as it writes the first block: a kernel
 * that reads or writes host memory is bound by the same wire. */
#include "spill/lines.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "spill/captures.h"
#include "spill/say.h"
#include "spill/settings.h"

enum { kTries = 3 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* 0 where it fails. */
static double seconds_to_write(const OocRuntime* real, void* block, size_t bytes,
                               cudaStream_t stream) {
  const double begin = now();
  cudaError_t status = real->cudaMemsetAsync(block, 0, bytes, stream);
  if (status == cudaSuccess) status = real->cudaStreamSynchronize(stream);
  if (status == cudaSuccess) return now() - begin;
  ooc_forget_error(real);
  return 0;
}

/* Of a device that has nothing else to do; the first time opens what is needed. */
static double least_seconds(const OocRuntime* real, void* block, size_t bytes,
                            cudaStream_t stream) {
  double least = 0;
  if (real->cudaDeviceSynchronize() != cudaSuccess) ooc_forget_error(real);
  seconds_to_write(real, block, bytes, stream);
  for (int i = 0; i < kTries; ++i) {
    const double seconds = seconds_to_write(real, block, bytes, stream);
    if (seconds > 0 && (least == 0 || seconds < least)) least = seconds;
  }
  return least;
}

/* Bytes in a second; 0 where it cannot be measured. */
static double wire_rate(const OocRuntime* real, void* block, size_t bytes) {
  const size_t most = (size_t)64 << 20;
  const size_t part = bytes < most ? bytes : most;
  cudaStream_t stream = NULL;
  if (ooc_capture_under_way()) return 0;
  if (real->cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    ooc_forget_error(real);
    return 0;
  }
  const double seconds = least_seconds(real, block, part, stream);
  if (real->cudaStreamDestroy(stream) != cudaSuccess) ooc_forget_error(real);
  return seconds > 0 ? (double)part / seconds : 0;
}

static void say(double limit, double bytes, double rate) {
  char cost[128] = "";
  if (rate > 0) {
    ooc_format(cost, sizeof cost,
               ": whatever reads or writes 1 GiB of it takes %.3g ms (%.3g GB/s)",
               0x1p30 / rate * 1e3, rate / 1e9);
  }
  ooc_say(kOocWarn,
          "past the limit of %.2f GiB requests are served from host memory, first one of %.3g "
          "MiB%s; OOCDNN_DISABLE=1 prevents it",
          limit / 0x1p30, bytes / 0x1p20, cost);
}

void ooc_say_spilled(const OocRuntime* real, void* block, size_t bytes) {
  static atomic_bool said;
  if (atomic_exchange(&said, true)) return;
  say((double)ooc_settings()->limit, (double)bytes, wire_rate(real, block, bytes));
}

void ooc_say_short(OocShortage shortage, size_t bytes) {
  static const char* const reasons[kOocShortages] = {
      [kOocNoRoom] = "it has too little left",
      [kOocPinnedLimit] = "more would be pinned than OOCDNN_PINNED_LIMIT allows",
      [kOocNotPinned] = "it cannot be pinned",
  };
  static atomic_bool said[kOocShortages];
  if (atomic_exchange(&said[shortage], true)) return;
  ooc_say(kOocWarn, "no host memory for a request of %zu bytes: %s", bytes, reasons[shortage]);
}

void ooc_say_not_shared(const OocBlock* block) {
  static atomic_bool said;
  if (atomic_exchange(&said, true)) return;
  ooc_say(kOocWarn,
          "no other process gets a handle of the block of %zu bytes at %p, which lies in host "
          "memory; share it before memory is full, share a copy in the CPU's memory, or raise "
          "--limit",
          block->bytes, (void*)block->at);
}
