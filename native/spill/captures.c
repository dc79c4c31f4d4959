#include "spill/captures.h"

#include <stdatomic.h>

static atomic_int under_way;

void ooc_capture_begins(void) { ++under_way; }

void ooc_capture_began(cudaError_t status) {
  if (status != cudaSuccess) --under_way;
}

static bool is_captured(const OocRuntime* real, cudaStream_t stream) {
  int capturing = cudaStreamCaptureStatusNone;
  if (real->cudaStreamIsCapturing(stream, &capturing) == cudaSuccess) {
    return capturing != cudaStreamCaptureStatusNone;
  }
  ooc_forget_error(real);
  return false;
}

/* A call that fails may end a capture (one that was invalidated), or not (another thread's). */
cudaError_t ooc_capture_end(const OocRuntime* real, cudaStream_t stream, cudaGraph_t* graph) {
  const bool before = is_captured(real, stream);
  const cudaError_t status = real->cudaStreamEndCapture(stream, graph);
  const bool ended = status == cudaSuccess || (before && !is_captured(real, stream));
  if (ended && under_way > 0) --under_way;
  return status;
}

bool ooc_capture_under_way(void) { return under_way > 0; }

int ooc_capture_mode(const OocRuntime* real, int mode) {
  if (real->cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess) return mode;
  ooc_forget_error(real);
  return cudaStreamCaptureModeGlobal;
}

bool ooc_capture_allows_requests(const OocRuntime* real) {
  if (!ooc_capture_under_way()) return false;
  const int mode = ooc_capture_mode(real, cudaStreamCaptureModeRelaxed);
  ooc_capture_mode(real, mode);
  return mode == cudaStreamCaptureModeRelaxed;
}
