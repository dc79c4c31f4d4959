/* What the spill library (native/spill, the preloaded liboocdnn_spill.so) tells those who ask. */
#pragma once

#include <stdint.h>

/* Bytes of this process. `device_…` are of the device that holds or held most; `host_…` are what
 * requests hold in host memory, `pinned_bytes` the slabs that they lie in, which only grow. */
typedef struct OocSpillFigures {
  int64_t limit, budget; /* of the whole process, and what of it is oocdnn's own */
  int64_t others; /* and what nobody asked for: CUDA's context, kernels, libraries' handles */
  int64_t device_bytes, device_peak;
  int64_t host_bytes, host_peak;
  int64_t pinned_bytes;
  int64_t refused; /* requests that were answered with cudaErrorMemoryAllocation */
} OocSpillFigures;

/* Exported by the spill library; zeros where it is off. */
void oocdnn_spill_figures(OocSpillFigures* figures);
