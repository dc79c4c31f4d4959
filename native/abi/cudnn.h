/* cuDNN 9 as far as the drop-in serves it without NVIDIA's library. A program that needs no more
 * compiles with this file or with NVIDIA's cudnn.h, interchangeably. */
#pragma once

/* The cuDNN whose exports the drop-in has, and whose version it tells where it serves alone. */
#define CUDNN_MAJOR 9
#define CUDNN_MINOR 28
#define CUDNN_PATCHLEVEL 0
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)

#include "abi/cudnn_backend.h"
#include "abi/cudnn_legacy.h"

/* Needs the types of both. */
#include "abi/cudnn_functions.h"
#include "abi/cudnn_handed_on.h"
