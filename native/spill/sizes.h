/* Arithmetic on sizes. A result past SIZE_MAX becomes SIZE_MAX, and one below zero becomes 0. No
 * device, host or limit holds SIZE_MAX bytes, so every comparison refuses it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

static inline size_t ooc_least(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t ooc_most(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t ooc_less(size_t a, size_t b) { return a > b ? a - b : 0; }

static inline size_t ooc_plus(size_t a, size_t b) {
  size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static inline size_t ooc_times(size_t a, size_t b) {
  size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* The next multiple of `step`, or SIZE_MAX, which need not be one. */
static inline size_t ooc_rounded(size_t bytes, size_t step) {
  return ooc_times(bytes / step + (bytes % step != 0), step);
}
