/* What the spill library (native/spill, the preloaded liboocdnn_spill.so) tells those who ask, and
 * what it asks the core. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of this process. `device_…` are of the device that holds or held most; `host_…` are what
 * requests hold in host memory, `pinned_bytes` the slabs that they lie in. */
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

/* Tells that the process keeps to the limit by itself, with memory that is asked of the driver.
 * Where what passes the limit was to be refused, the library does nothing from then on. */
void oocdnn_spill_planned(void);

/* Exported by the core: what it holds of a CUDA device now, of its budget. In bytes; 0 for a device
 * that it does not use. From any thread. */
int64_t oocdnn_device_bytes(int device);

#ifdef __cplusplus
}
#endif
