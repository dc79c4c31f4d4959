/* Random calls of the spill library, in front of the runtime that has no device: sizes up to
 * SIZE_MAX, null pointers, addresses that were never given. The library's sources are compiled into
 * this program, so that sanitizers see them.
 *
 *   fuzz SEED CALLS
 *
 * Host memory is filled, and must be as it was when it is freed. A call that breaks a rule is named
 * with the seed; so is the one that a sanitizer reports. */
#include "abi/spill.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/runtime.h"

/* The entries of this program, by either version. */
#define DECLARE(name, parameters)   \
  cudaError_t name##_12 parameters; \
  cudaError_t name##_13 parameters;
OOC_RUNTIME_SERVED(DECLARE)

enum { kSlots = 64, kStreams = 8, kKinds = 16, kSmall = 1 << 16 };
static const uint64_t kLimit = 8 << 20; /* OOCDNN_LIMIT, of which half is the budget */

typedef struct Slot {
  unsigned char* at;
  size_t bytes;
  int device, on_host, asynchronous;
  unsigned char fill;
} Slot;

static Slot slots[kSlots];
static uint64_t state, seed;
static long call;
static char what[128];
static long served, refused, host;
static int current, capturing[kStreams], under_way;
static cudaError_t (*set_device)(int);
static cudaError_t (*exchange_mode)(int*);
static void (*fail_waits)(int);

static void place(void) {
  fprintf(stderr, "seed %llu, call %ld: %s\n", (unsigned long long)seed, call, what);
}

void __sanitizer_set_death_callback(void (*function)(void)) __attribute__((weak));

static void broken(const char* rule) {
  fprintf(stderr, "%s\n", rule);
  place();
  _exit(1);
}

/* splitmix64 */
static uint64_t random64(void) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static size_t below(size_t count) { return (size_t)(random64() % count); }
static int chance(int of_hundred) { return below(100) < (size_t)of_hundred; }

static size_t any_size(void) {
  const size_t near = below(3) - 1; /* may wrap */
  switch (below(8)) {
    case 0:
      return SIZE_MAX - below(4096);
    case 1:
      return ((size_t)1 << below(64)) + near;
    case 2:
      return SIZE_MAX - ((size_t)1 << below(64)) + near;
    case 3:
      return below(2 << 20);
    case 4:
      return below(3) * 512 + near;
    default:
      return below(kSmall);
  }
}

static cudaStream_t any_stream(void) {
  static const size_t streams[] = {0, 1, 2, 5, 7, 101};
  return (cudaStream_t)streams[below(sizeof streams / sizeof *streams)];
}

/* Device memory answers EFAULT. */
static int lies_on_host(const void* at) {
  static int ends[2] = {-1, -1};
  char byte = 0;
  if (ends[0] < 0 && pipe(ends) != 0) abort();
  const int readable = write(ends[1], at, 1) == 1;
  if (readable && read(ends[0], &byte, 1) != 1) abort();
  return readable;
}

static size_t part(const Slot* slot) { return slot->bytes < kSmall ? slot->bytes : kSmall; }

static void fill(Slot* slot) {
  slot->fill = (unsigned char)random64();
  memset(slot->at, slot->fill, part(slot));
  memset(slot->at + slot->bytes - part(slot), slot->fill, part(slot));
}

static void check(const Slot* slot) {
  for (size_t i = 0; i < part(slot); ++i) {
    if (slot->at[i] != slot->fill || slot->at[slot->bytes - 1 - i] != slot->fill) {
      broken("a block in host memory was changed by another's use");
    }
  }
}

static cudaError_t ask(int kind, void** at, size_t* bytes) {
  const int old = chance(50);
  const cudaStream_t stream = any_stream();
  size_t pitch = 0;
  cudaPitchedPtr made = {NULL, 0, 0, 0};
  const size_t rows = chance(50) ? below(9) : any_size();
  const size_t planes = chance(80) ? 1 : any_size();
  cudaError_t status = 0;
  switch (kind) {
    case 0:
      return old ? cudaMalloc_12(at, *bytes) : cudaMalloc_13(at, *bytes);
    case 1:
      return cudaMallocAsync_13(at, *bytes, stream);
    case 2:
      return cudaMallocAsync_ptsz_13(at, *bytes, stream);
    case 3:
      return cudaMallocFromPoolAsync_13(at, *bytes, NULL, stream);
    case 4:
      return cudaMallocFromPoolAsync_ptsz_13(at, *bytes, NULL, stream);
    case 5:
      snprintf(what, sizeof what, "cudaMallocPitch of %zu by %zu", *bytes, rows);
      status = cudaMallocPitch_13(at, &pitch, *bytes, rows);
      if (__builtin_mul_overflow(*bytes, rows, bytes)) *bytes = SIZE_MAX;
      return status;
    default:
      snprintf(what, sizeof what, "cudaMalloc3D of %zu by %zu by %zu", *bytes, rows, planes);
      status = cudaMalloc3D_13(&made, (cudaExtent){*bytes, rows, planes});
      *at = made.ptr;
      if (__builtin_mul_overflow(*bytes, rows, bytes)) *bytes = SIZE_MAX;
      if (*bytes != 0 && __builtin_mul_overflow(*bytes, planes, bytes)) *bytes = SIZE_MAX;
      return status;
  }
}

static void allocate(void) {
  Slot* const slot = &slots[below(kSlots)];
  if (slot->at != NULL) return;
  const int kind = (int)below(7);
  const size_t asked = any_size();
  for (int try = 0; try < 2; ++try) {
    void* at = NULL;
    size_t bytes = asked;
    snprintf(what, sizeof what, "allocation %d of %zu bytes", kind, bytes);
    const uint64_t before = state;
    if (ask(kind, &at, &bytes) != cudaSuccess) {
      ++refused;
      if (chance(20)) return;
      state = before; /* the same once more */
      continue;
    }
    ++served;
    if (at == NULL) {
      if (bytes > 0) broken("success with nothing behind it");
      return;
    }
    if (bytes > (size_t)1 << 40) broken("success for more than the card and the host have");
    *slot = (Slot){at, bytes, 0, bytes > 0 && lies_on_host(at), kind > 0 && kind < 5, 0};
    if (slot->on_host) ++host, fill(slot);
    return;
  }
}

static void release(void) {
  Slot* const slot = &slots[below(kSlots)];
  if (slot->at == NULL) return;
  snprintf(what, sizeof what, "free of %zu bytes", slot->bytes);
  if (slot->on_host) check(slot);
  const cudaError_t status = chance(50)
                                 ? (chance(50) ? cudaFree_12(slot->at) : cudaFree_13(slot->at))
                                 : (chance(50) ? cudaFreeAsync_13(slot->at, any_stream())
                                               : cudaFreeAsync_ptsz_13(slot->at, any_stream()));
  if (status == cudaSuccess) *slot = (Slot){0};
}

/* In a block, behind it, or nowhere. */
static void* any_address(void) {
  const Slot* const slot = &slots[below(kSlots)];
  switch (below(4)) {
    case 0:
      return NULL;
    case 1:
      return (void*)(uintptr_t)random64();
    case 2:
      return slot->at;
    default:
      return slot->at == NULL ? NULL : slot->at + below(slot->bytes + 1);
  }
}

static void free_nothing(void) {
  void* const at = any_address();
  for (int i = 0; i < kSlots; ++i) {
    if (slots[i].at == (unsigned char*)at) return;
  }
  snprintf(what, sizeof what, "free of %p", at);
  if (chance(50)) {
    cudaFree_13(at);
  } else {
    cudaFreeAsync_13(at, any_stream());
  }
}

static void look(void) {
  size_t free = 0, total = 0;
  const int wrong = chance(20);
  strcpy(what, "cudaMemGetInfo");
  const cudaError_t status =
      cudaMemGetInfo_13(wrong && chance(50) ? NULL : &free, wrong ? NULL : &total);
  if (wrong && status == cudaSuccess) broken("success without a place");
  if (!wrong && status == cudaSuccess && (free > total || total > kLimit / 2)) {
    broken("more memory than the limit");
  }
}

static void ask_of_address(void) {
  cudaPointerAttributes attributes;
  cudaIpcMemHandle_t handle;
  void* const at = any_address();
  snprintf(what, sizeof what, "attributes of %p", at);
  cudaPointerGetAttributes_13(chance(5) ? NULL : &attributes, at);
  cudaIpcGetMemHandle_13(chance(5) ? NULL : &handle, at);
}

static void capture(void) {
  const size_t stream = below(kStreams);
  cudaGraph_t graph = NULL;
  snprintf(what, sizeof what, "capture of stream %zu", stream);
  if (chance(40)) {
    const cudaError_t status =
        chance(50) ? cudaStreamBeginCapture_13((cudaStream_t)stream, 0)
                   : cudaStreamBeginCaptureToGraph_13((cudaStream_t)stream, NULL, NULL, NULL, 0, 0);
    if (status == cudaSuccess) capturing[stream] = 1, ++under_way;
  } else {
    cudaStreamEndCapture_13((cudaStream_t)stream, &graph);
    if (capturing[stream]) --under_way;
    capturing[stream] = 0;
  }
}

static void end_captures(void) {
  cudaGraph_t graph = NULL;
  for (size_t i = 0; i < kStreams; ++i) {
    if (capturing[i]) cudaStreamEndCapture_13((cudaStream_t)i, &graph);
    capturing[i] = 0;
  }
  under_way = 0;
}

/* Which blocks are of the device is not known here: all are freed first, but for those that wait
 * for the end of a capture. */
static void reset(void) {
  end_captures();
  strcpy(what, "cudaDeviceReset");
  for (int device = 0; device < 2; ++device) {
    set_device(device);
    cudaDeviceReset_13();
  }
  set_device(current);
  memset(slots, 0, sizeof slots);
}

static void switch_something(void) {
  int mode = (int)below(3);
  switch (below(3)) {
    case 0:
      set_device(current = (int)below(2));
      return;
    case 1:
      exchange_mode(&mode);
      return;
    default:
      fail_waits((int)below(2));
      return;
  }
}

static void figures(void) {
  OocSpillFigures of = {0};
  strcpy(what, "oocdnn_spill_figures");
  oocdnn_spill_figures(&of);
  if (of.device_bytes < 0 || of.device_bytes > of.limit - of.budget) broken("past the limit");
  if (of.host_bytes < 0 || of.host_bytes > of.pinned_bytes) broken("more host memory than slabs");
}

static void step(void) {
  static void (*const rare[])(void) = {look,    ask_of_address, capture, switch_something,
                                       figures, free_nothing};
  const size_t dice = below(1000);
  if (dice < 1) {
    reset();
  } else if (dice < 200) {
    rare[below(sizeof rare / sizeof *rare)]();
  } else if (dice < 600) {
    allocate();
  } else {
    release();
  }
  if (under_way > 0 && chance(10)) end_captures();
}

static void find(void* library, const char* name, void* function) {
  void* const address = dlsym(library, name);
  if (address == NULL) abort();
  memcpy(function, &address, sizeof address);
}

int main(int count, char** words) {
  if (count != 3) return 2;
  seed = state = strtoull(words[1], NULL, 10);
  const long calls = atol(words[2]);
  if (__sanitizer_set_death_callback != NULL) __sanitizer_set_death_callback(place);
  void* const runtime = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  find(runtime, "cudaSetDevice", &set_device);
  find(runtime, "cudaThreadExchangeStreamCaptureMode", &exchange_mode);
  find(runtime, "fake_fail_waits", &fail_waits);
  for (call = 0; call < calls; ++call) step();
  strcpy(what, "the end");
  fail_waits(0);
  reset();
  OocSpillFigures left = {0};
  oocdnn_spill_figures(&left);
  if (left.device_bytes != 0 || left.host_bytes != 0 || left.pinned_bytes != 0) {
    broken("memory is left after everything was freed");
  }
  printf("%ld calls, %ld served, %ld in host memory, %ld refused\n", call, served, host, refused);
  return 0;
}
