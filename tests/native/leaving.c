/* Threads that end within a call: pthread_exit and pthread_cancel in and around its callback. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oocdnn.h"

enum { kChannels = 16, kExtent = 40, kTaps = 3, kOut = kExtent - kTaps + 1 };

static const char* device = "cpu"; /* or several, separated by commas */
static float x[kChannels * kExtent * kExtent], w[kChannels * kChannels * kTaps * kTaps];

static void fail(const char* what) {
  printf("%s: %s\n", what, oocdnn_last_error());
  exit(1);
}

static oocdnn_context* open_context(void) {
  oocdnn_options options = oocdnn_default_options();
  oocdnn_context* context = NULL;
  options.device = device;
  options.budget = "64KiB";
  options.profile = "none";
  options.threads = 2;
  if (oocdnn_create(&options, &context) != OOCDNN_OK) fail("create");
  return context;
}

/* One call with results of its own; what it returns. */
static oocdnn_status call(oocdnn_context* context, oocdnn_progress progress, void* user) {
  const size_t bytes = sizeof(float) * kChannels * kOut * kOut;
  float* const y = malloc(bytes); /* not freed where the thread ends in the call */
  const int64_t of_x[] = {1, kChannels, kExtent, kExtent}, of_y[] = {1, kChannels, kOut, kOut};
  const int64_t of_w[] = {kChannels, kChannels, kTaps, kTaps};
  const oocdnn_tensor tx = oocdnn_dense_tensor(OOCDNN_FLOAT32, 4, of_x, x);
  const oocdnn_tensor tw = oocdnn_dense_tensor(OOCDNN_FLOAT32, 4, of_w, w);
  const oocdnn_tensor ty = oocdnn_dense_tensor(OOCDNN_FLOAT32, 4, of_y, y);
  oocdnn_convolution convolution = oocdnn_default_convolution(OOCDNN_FORWARD, 2);
  oocdnn_operands operands;
  memset(&operands, 0, sizeof operands);
  memset(y, 0xff, bytes);
  operands.x = &tx;
  operands.w = &tw;
  operands.y = &ty;
  convolution.progress = progress;
  convolution.progress_user = user;
  const oocdnn_status status = oocdnn_run(context, &convolution, &operands);
  for (int i = 0; status == OOCDNN_OK && i < kChannels * kOut * kOut; ++i) {
    if (y[i] != kChannels * kTaps * kTaps) fail("a wrong result");
  }
  free(y);
  return status;
}

/* The action of a thread's callback at the first tile that it is told of. */
struct scene {
  int (*act)(struct scene*);
  oocdnn_context* context;
  pthread_barrier_t arrived, go_on;
  int acted, returned; /* `returned`: from the call */
};

static int on_tile(void* user, int64_t done, int64_t tiles) {
  struct scene* const scene = user;
  (void)tiles;
  if (done == 0 || scene->acted) return 0;
  scene->acted = 1;
  return scene->act(scene);
}

static int leave(struct scene* scene) {
  (void)scene;
  pthread_exit(NULL);
}

static int cancel_itself(struct scene* scene) {
  (void)scene;
  pthread_cancel(pthread_self());
  pthread_testcancel();
  return 0;
}

static int destroy(struct scene* scene) {
  oocdnn_destroy(scene->context);
  return 0;
}

static int destroy_and_leave(struct scene* scene) {
  oocdnn_destroy(scene->context);
  pthread_exit(NULL);
}

/* Is cancelled meanwhile, where no cancellation point of its own follows. */
static int wait_for_cancel(struct scene* scene) {
  pthread_barrier_wait(&scene->arrived);
  pthread_barrier_wait(&scene->go_on);
  return 0;
}

/* The context's own callback is refused, and answers. */
static int call_again(struct scene* scene) {
  oocdnn_stats stats;
  const char* text = NULL;
  if (call(scene->context, NULL, NULL) != OOCDNN_DEVICE_ERROR) fail("a call in its callback");
  if (strstr(oocdnn_last_error(), "oocdnn_run was called from") == NULL) fail("its text");
  if (oocdnn_plan(scene->context, "conv1d:fwd x1x1x9 w1x1x3", &text) != OOCDNN_DEVICE_ERROR) {
    fail("a plan in the callback");
  }
  if (oocdnn_get_stats(scene->context, &stats) != OOCDNN_OK) fail("stats");
  if (strchr(device, ',') == NULL && stats.tiles != 1) fail("stats of one device");
  return 0;
}

static void* run(void* argument) {
  struct scene* const scene = argument;
  if (call(scene->context, on_tile, scene) != OOCDNN_OK) fail("a call");
  scene->returned = 1;
  pthread_testcancel();
  return NULL;
}

/* Plays it in a thread; whether the call was to return, and the thread to be cancelled. */
static void play(const char* name, int (*act)(struct scene*), int returns, int cancels) {
  struct scene scene = {.act = act, .context = open_context()};
  const int waits = act == wait_for_cancel;
  const int destroys = act == destroy || act == destroy_and_leave;
  pthread_t thread;
  void* result = NULL;
  pthread_barrier_init(&scene.arrived, NULL, 2);
  pthread_barrier_init(&scene.go_on, NULL, 2);
  pthread_create(&thread, NULL, run, &scene);
  if (waits) {
    pthread_barrier_wait(&scene.arrived);
    pthread_cancel(thread);
    pthread_barrier_wait(&scene.go_on);
  }
  pthread_join(thread, &result);
  if (scene.returned != returns) fail(name);
  if ((result == PTHREAD_CANCELED) != cancels) fail(name);
  if (!destroys) {
    if (call(scene.context, NULL, NULL) != OOCDNN_OK) fail("the next call");
    oocdnn_destroy(scene.context);
  }
  printf("%s\n", name);
}

int main(int count, char** arguments) {
  if (count > 1) device = arguments[1];
  for (size_t i = 0; i < sizeof x / sizeof *x; ++i) x[i] = 1;
  for (size_t i = 0; i < sizeof w / sizeof *w; ++i) w[i] = 1;
  play("exits", leave, 0, 0);
  play("cancels itself", cancel_itself, 0, 1);
  play("is cancelled", wait_for_cancel, 1, 1);
  play("destroys", destroy, 1, 0);
  play("destroys and exits", destroy_and_leave, 0, 0);
  play("calls again", call_again, 1, 0);
  return 0;
}
