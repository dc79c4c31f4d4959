/* Captures of CUDA graphs: what of them forbids to wait for a device, and tells a program that will
 * ask only once. Thread-safe. */
#pragma once

#include <stdbool.h>

#include "spill/runtime.h"

/* To be told before cudaStreamBeginCapture and its kin are called, and what they answered. */
void ooc_capture_begins(void);
void ooc_capture_began(cudaError_t status);
/* Calls cudaStreamEndCapture. */
cudaError_t ooc_capture_end(const OocRuntime* real, cudaStream_t stream, cudaGraph_t* graph);

/* Whether any capture is under way that was begun through this library. */
bool ooc_capture_under_way(void);

/* The same, in a thread that has set its mode to relaxed, so that it may allocate nevertheless.
 * PyTorch does so around a request that it will not repeat. */
bool ooc_capture_allows_requests(const OocRuntime* real);

/* The thread's mode of capture becomes `mode`; the one before. */
int ooc_capture_mode(const OocRuntime* real, int mode);
