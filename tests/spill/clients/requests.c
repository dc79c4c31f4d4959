/* Does what standard input says, a line each, and prints what came of it, a line each:
 *
 *   THREAD m SLOT BYTES   cudaMalloc               -> its status, and "device" or "host"; "held" if
 *                                                     the slot has memory: then nothing is asked
 *   THREAD a SLOT BYTES   cudaMallocAsync          -> the same; on stream SLOT = 5, else stream 0
 *   THREAD o SLOT BYTES   the same on a stream of device 1
 *   THREAD p SLOT BYTES   cudaMallocFromPoolAsync, in stream order as `a`
 *   THREAD A, P, G        `a`, `p` and `g` by their names with _ptsz
 *   THREAD u SLOT BYTES   cudaMallocPitch, 4 rows  -> the same; "crooked" for a bad pitch
 *   THREAD v SLOT BYTES   cudaMalloc3D, 2 x 2 rows -> the same
 *   THREAD f SLOT         cudaFree                 -> its status
 *   THREAD g SLOT         cudaFreeAsync            -> its status
 *   THREAD s SLOT         cudaFree of the second byte -> its status; the slot keeps its memory
 *   THREAD i 0            cudaMemGetInfo           -> free and total
 *   THREAD t SLOT         the pointer's attributes -> type, and whether there is a host pointer
 *   THREAD h SLOT         cudaIpcGetMemHandle      -> its status
 *   THREAD d DEVICE       cudaSetDevice            -> its status
 *   THREAD z 0            cudaDeviceReset          -> its status; slots are empty then
 *   THREAD q 0            cudaGetLastError         -> it
 *   THREAD b, B STREAM    cudaStreamBeginCapture, cudaStreamBeginCaptureToGraph -> its status
 *   THREAD e STREAM       cudaStreamEndCapture     -> its status
 *   THREAD D, C, F STREAM b, B and e by their names with _ptsz
 *   THREAD r MODE         cudaThreadExchangeStreamCaptureMode -> the mode before
 *   THREAD w COUNT        as many waits for a device fail
 *   THREAD x SLOT         it is freed while the runtime looks at the card the next time
 *   THREAD l SLOT BYTES   many times: cudaMalloc, twice if refused, and cudaFree
 *   THREAD c MIB          the card holds as much of others
 *   THREAD k 0            fork, and wait           -> the child's status, which is how many
 *                                                     host blocks it has
 *
 * Threads take turns in the order of the lines; with an argument they do not wait for each other.
 * Host memory is filled, and must be as it was when it is freed. The last line are figures. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
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
void fake_figures(long long figures[8]);
void fake_free_at_look(void* pointer);
void fake_fail_waits(int count);

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

static cudaError_t ask_pitched(const Line* line, void** at, size_t* bytes) {
  size_t pitch = 0;
  cudaPitchedPtr made = {NULL, 0, 0, 0};
  const size_t width = line->bytes / 4;
  const int status = line->what == 'u' ? cudaMallocPitch(at, &pitch, width, 4)
                                       : cudaMalloc3D(&made, (cudaExtent){width, 2, 2});
  if (line->what == 'v') {
    *at = made.ptr;
    pitch = made.pitch;
  }
  *bytes = 4 * pitch;
  if (status == 0 && pitch < width) abort();
  if (status == 0 && line->what == 'v' && (made.xsize != width || made.ysize != 2)) abort();
  return status;
}

static cudaError_t ask_for(const Line* line, void** at, size_t* bytes) {
  const cudaStream_t stream = (cudaStream_t)(size_t)(line->slot == 5 ? 5 : 0);
  switch (line->what) {
    case 'm': return cudaMalloc(at, *bytes);
    case 'a': return cudaMallocAsync(at, *bytes, stream);
    case 'A': return cudaMallocAsync_ptsz(at, *bytes, stream);
    case 'p': return cudaMallocFromPoolAsync(at, *bytes, NULL, stream);
    case 'P': return cudaMallocFromPoolAsync_ptsz(at, *bytes, NULL, stream);
    case 'o': return cudaMallocAsync(at, *bytes, (cudaStream_t)101);
    default: return ask_pitched(line, at, bytes);
  }
}

static void allocate(Line* line, Slot* slot) {
  if (slot->at != NULL) {
    strcpy(line->answer, "held");
    return;
  }
  void* at = NULL;
  size_t bytes = line->bytes;
  const int status = ask_for(line, &at, &bytes);
  *slot = (Slot){at, bytes, status == 0 && at != NULL && lies_on_host(at)};
  if (slot->on_host) memset(at, line->slot, bytes);
  snprintf(line->answer, sizeof line->answer, "%d %s", status,
           status != 0     ? "none"
           : slot->on_host ? "host"
                           : "device");
}

/* What two threads are given at once must not be the same. */
static void loop(const Line* line) {
  for (int i = 0; i < 300; ++i) {
    void* at = NULL;
    if (cudaMalloc(&at, line->bytes) != 0 && cudaMalloc(&at, line->bytes) != 0) continue;
    char* const mark = at;
    const int writes = lies_on_host(at);
    if (writes) mark[line->bytes - 1] = (char)(line->slot + i);
    sched_yield();
    if (writes && mark[line->bytes - 1] != (char)(line->slot + i)) abort();
    while (cudaFree(at) != 0) sched_yield(); /* a capture of another thread has just begun */
  }
}

static void release(Line* line, Slot* slot) {
  for (size_t i = 0; slot->on_host && i < slot->bytes; ++i) {
    if (slot->at[i] != (char)line->slot) abort();
  }
  char* const at = slot->at;
  const int status = line->what == 'f'   ? cudaFree(at)
                     : line->what == 'g' ? cudaFreeAsync(at, NULL)
                                         : cudaFreeAsync_ptsz(at, NULL);
  if (status == 0) *slot = (Slot){NULL, 0, 0};
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

static int capture(const Line* line) {
  cudaGraph_t graph = NULL;
  const cudaStream_t stream = (cudaStream_t)(size_t)line->slot;
  switch (line->what) {
    case 'b': return cudaStreamBeginCapture(stream, 0);
    case 'D': return cudaStreamBeginCapture_ptsz(stream, 0);
    case 'B': return cudaStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, 0);
    case 'C': return cudaStreamBeginCaptureToGraph_ptsz(stream, NULL, NULL, NULL, 0, 0);
    case 'e': return cudaStreamEndCapture(stream, &graph);
    default: return cudaStreamEndCapture_ptsz(stream, &graph);
  }
}

static int relax(int mode) {
  cudaThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

static int reset(void) {
  for (int i = 0; i < kSlots; ++i) slots[i] = (Slot){NULL, 0, 0};
  return cudaDeviceReset();
}

static void others(int mib) {
  char bytes[32];
  snprintf(bytes, sizeof bytes, "%lld", (long long)mib << 20);
  setenv("FAKE_CONTEXT", bytes, 1);
}

static void free_at_look(Slot* slot) {
  fake_free_at_look(slot->at);
  *slot = (Slot){NULL, 0, 0};
}

static int plan(void) {
  void (*planned)(void) = NULL;
  void* const found = dlsym(RTLD_DEFAULT, "oocdnn_spill_planned");
  memcpy(&planned, &found, sizeof found);
  if (planned != NULL) planned();
  return planned == NULL;
}

/* False where the line is no such command. */
static int command(Line* line) {
  int status = 0;
  switch (line->what) {
    case 'd': status = cudaSetDevice(line->slot); break;
    case 'q': status = cudaGetLastError(); break;
    case 'r': status = relax(line->slot); break;
    case 'z': status = reset(); break;
    case 'w': fake_fail_waits(line->slot); break;
    case 'x': free_at_look(&slots[line->slot]); break;
    case 'l': loop(line); break;
    case 'c': others(line->slot); break;
    case 'n': status = plan(); break;
    default:
      if (strchr("bBeDCF", line->what) == NULL) return 0;
      status = capture(line);
  }
  snprintf(line->answer, sizeof line->answer, "%d", status);
  return 1;
}

static void obey(Line* line) {
  Slot* const slot = &slots[line->slot];
  if (command(line)) return;
  if (strchr("maoApPuv", line->what) != NULL) {
    allocate(line, slot);
  } else if (strchr("fgG", line->what) != NULL) {
    release(line, slot);
  } else if (line->what == 's') {
    snprintf(line->answer, sizeof line->answer, "%d", cudaFree(slot->at + 1));
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
  long long fake[8];
  OocSpillFigures ours = {0};
  fake_figures(fake);
  void (*figures_of)(OocSpillFigures*) = NULL;
  void* const found = dlsym(RTLD_DEFAULT, "oocdnn_spill_figures");
  memcpy(&figures_of, &found, sizeof found);
  if (figures_of != NULL) figures_of(&ours);
  for (int i = 0; i < 8; ++i) printf("%lld ", fake[i]);
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
