/* A library in the place of the real cuDNN, which shows what reaches it: floats by value, more
 * arguments than there are registers, the return types of cuDNN's functions. It lacks most names.
 * The arguments stand in a text that cudnnGetErrorString gives back, whatever it is asked. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static char seen[512];

static int note(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(seen, sizeof seen, format, arguments);
  va_end(arguments);
  return 5003;
}

size_t cudnnGetVersion(void) { return ((size_t)9 << 40) + 1234; }
const char* cudnnGetErrorString(int status) { return (void)status, seen; }

int cudnnSetActivationDescriptor(void* descriptor, int mode, int nans, double coef) {
  return note("%p %d %d %a", descriptor, mode, nans, coef);
}

/* In cuDNN a float and a pointer stand between integers: dropout. */
int cudnnSetDropoutDescriptor(void* descriptor, void* handle, float dropout, void* states,
                              size_t bytes, unsigned long long seed) {
  return note("%p %p %a %p %zu %llu", descriptor, handle, (double)dropout, states, bytes, seed);
}

int cudnnBatchNormalizationForwardInference(void* a, int b, void* c, void* d, void* e, void* f,
                                            void* g, void* h, void* i, void* j, void* k, void* l,
                                            void* m, double epsilon) {
  return note("%p %d %p %p %p %p %p %p %p %p %p %p %p %a", a, b, c, d, e, f, g, h, i, j, k, l, m,
              epsilon);
}

int cudnnSetConvolution2dDescriptor(void* a, int b, int c, int d, int e, int f, int g, int h,
                                    int i) {
  return note("%p %d %d %d %d %d %d %d %d", a, b, c, d, e, f, g, h, i);
}
