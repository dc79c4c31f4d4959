/* Does what standard input says, a line each, and prints what came of it, a line each:
 *
 *   THREAD m SLOT BYTES   cudaMalloc               -> its status, and "device" or "host"; "held" if
 *                                                     the slot has memory: then nothing is asked
 *   THREAD a SLOT BYTES   cudaMallocAsync          -> the same; on stream SLOT = 1 in a capture
 *   THREAD f SLOT         cudaFree                 -> its status
 *   THREAD g SLOT         cudaFreeAsync            -> its status
 *   THREAD i 0            cudaMemGetInfo           -> free and total
 *   THREAD t SLOT         the pointer's attributes -> type, and whether there is a host pointer
 *   THREAD h SLOT         cudaIpcGetMemHandle      -> its status
 *   THREAD d DEVICE       cudaSetDevice            -> its status
 *   THREAD c 0            the card holds 4 MiB more of others
 *   THREAD k 0            fork, and wait           -> the child's status, which is how many
 *                                                     host blocks it has
 *
 * Threads take turns in the order of the lines; with an argument they do not wait for each other.
 * Host memory is filled, and must be as it was when it is freed. The last line are figures. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/runtime.h"
#include "abi/spill.h"

#define DECLARE(name, parameters) cudaError_t name parameters;
OOC_RUNTIME_SERVED(DECLARE)
OOC_RUNTIME_USED(DECLARE)
void fake_figures(long long figures[5]);

enum { kLines = 20000, kSlots = 256, kThreads = 8 };
typedef struct Line {
  int thread, slot;
  char what;
  size_t bytes;
  char answer[64];
} Line;
typedef struct Slot {
  char* at;
  size_t bytes;
  int on_host;
} Slot;

static Line lines[kLines];
static int count, turn, take_turns = 1;
static Slot slots[kSlots];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t next = PTHREAD_COND_INITIALIZER;

static int lies_on_host(const void* at) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  const int readable = write(ends[1], at, 1) == 1; /* device memory answers EFAULT */
  close(ends[0]);
  close(ends[1]);
  return readable;
}

static void allocate(Line* line, Slot* slot) {
  if (slot->at != NULL) {
    strcpy(line->answer, "held");
    return;
  }
  void* at = NULL;
  const cudaStream_t stream = (cudaStream_t)(size_t)(line->slot == 1);
  const int status =
      line->what == 'm' ? cudaMalloc(&at, line->bytes) : cudaMallocAsync(&at, line->bytes, stream);
  *slot = (Slot){at, line->bytes, status == 0 && at != NULL && lies_on_host(at)};
  if (slot->on_host) memset(at, line->slot, line->bytes);
  snprintf(line->answer, sizeof line->answer, "%d %s", status,
           status != 0     ? "none"
           : slot->on_host ? "host"
                           : "device");
}

static void release(Line* line, Slot* slot) {
  for (size_t i = 0; slot->on_host && i < slot->bytes; ++i) {
    if (slot->at[i] != (char)line->slot) abort();
  }
  char* const at = slot->at;
  *slot = (Slot){NULL, 0, 0};
  const int status = line->what == 'f' ? cudaFree(at) : cudaFreeAsync(at, NULL);
  snprintf(line->answer, sizeof line->answer, "%d", status);
}

static void ask(Line* line, const Slot* slot) {
  size_t free = 0;
  size_t total = 0;
  cudaPointerAttributes attributes;
  cudaIpcMemHandle_t handle;
  if (line->what == 'i' && cudaMemGetInfo(&free, &total) == 0) {
    snprintf(line->answer, sizeof line->answer, "%zu %zu", free, total);
  }
  if (line->what == 't' && cudaPointerGetAttributes(&attributes, slot->at + 1) == 0) {
    snprintf(line->answer, sizeof line->answer, "%d %d", attributes.type,
             attributes.hostPointer != NULL);
  }
  if (line->what == 'h') {
    snprintf(line->answer, sizeof line->answer, "%d", cudaIpcGetMemHandle(&handle, slot->at));
  }
}

static int inherited(void) {
  int blocks = 0;
  for (int i = 0; i < kSlots; ++i) blocks += slots[i].on_host && lies_on_host(slots[i].at);
  return blocks;
}

static void fork_and_wait(Line* line) {
  const pid_t child = fork();
  if (child == 0) exit(inherited());
  int status = -1;
  waitpid(child, &status, 0);
  snprintf(line->answer, sizeof line->answer, "%d", status);
}

static void obey(Line* line) {
  Slot* const slot = &slots[line->slot];
  if (line->what == 'm' || line->what == 'a') {
    allocate(line, slot);
  } else if (line->what == 'f' || line->what == 'g') {
    release(line, slot);
  } else if (line->what == 'd') {
    snprintf(line->answer, sizeof line->answer, "%d", cudaSetDevice(line->slot));
  } else if (line->what == 'c') {
    setenv("FAKE_CONTEXT", "4194304", 1);
  } else if (line->what == 'k') {
    fork_and_wait(line);
  } else {
    ask(line, slot);
  }
}

static void* work(void* number) {
  for (int i = 0; i < count; ++i) {
    if (lines[i].thread != (int)(size_t)number) continue;
    pthread_mutex_lock(&lock);
    while (take_turns && turn != i) pthread_cond_wait(&next, &lock);
    pthread_mutex_unlock(&lock);
    obey(&lines[i]);
    pthread_mutex_lock(&lock);
    ++turn;
    pthread_cond_broadcast(&next);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

static void print_figures(void) {
  long long fake[5];
  OocSpillFigures ours = {0};
  fake_figures(fake);
  void (*figures_of)(OocSpillFigures*) = NULL;
  void* const found = dlsym(RTLD_DEFAULT, "oocdnn_spill_figures");
  memcpy(&figures_of, &found, sizeof found);
  if (figures_of != NULL) figures_of(&ours);
  for (int i = 0; i < 5; ++i) printf("%lld ", fake[i]);
  const int64_t all[] = {ours.limit,        ours.budget,       ours.others,
                         ours.device_bytes, ours.device_peak,  ours.host_bytes,
                         ours.host_peak,    ours.pinned_bytes, ours.refused};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) printf("%lld ", (long long)all[i]);
  printf("\n");
}

int main(int arguments, char** values) {
  (void)values;
  take_turns = arguments == 1;
  char text[128];
  while (count < kLines && fgets(text, sizeof text, stdin) != NULL) {
    Line* const line = &lines[count++];
    sscanf(text, "%d %c %d %zu", &line->thread, &line->what, &line->slot, &line->bytes);
  }
  pthread_t threads[kThreads];
  for (size_t i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
  for (size_t i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < count; ++i) puts(lines[i].answer);
  print_figures();
  return 0;
}
