/* Calls cuDNN, and prints what the library behind the drop-in saw of each argument. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define AT(n) ((void*)(uintptr_t)(n))

size_t cudnnGetVersion(void);
const char* cudnnGetErrorString(int);
void cudnnGetLastErrorString(char*, size_t);
int cudnnSetActivationDescriptor(void*, int, int, double);
int cudnnSetDropoutDescriptor(void*, void*, float, void*, size_t, unsigned long long);
int cudnnBatchNormalizationForwardInference(void*, int, void*, void*, void*, void*, void*, void*,
                                            void*, void*, void*, void*, void*, double);
int cudnnSetConvolution2dDescriptor(void*, int, int, int, int, int, int, int, int);
int cudnnRNNForward(void*);

static void show(int status) { printf("%d %s\n", status, cudnnGetErrorString(0)); }

int main(void) {
  /* The first call of all has floats: what fills the table must not lose them. */
  show(cudnnSetDropoutDescriptor(AT(0x11), AT(0x12), 0.375F, AT(0x13), 14, 15));
  show(cudnnSetActivationDescriptor(AT(0x21), 22, 23, -2.5));
  show(cudnnBatchNormalizationForwardInference(AT(0x31), 2, AT(0x33), AT(0x34), AT(0x35), AT(0x36),
                                               AT(0x37), AT(0x38), AT(0x39), AT(0x3a), AT(0x3b),
                                               AT(0x3c), AT(0x3d), 1e-5));
  show(cudnnSetConvolution2dDescriptor(AT(0x41), 2, 3, 4, 5, 6, 7, 8, 9));
  printf("%zu\n", cudnnGetVersion());
  char text[128] = "";
  printf("%d\n", cudnnRNNForward(AT(0x51)));
  cudnnGetLastErrorString(text, sizeof text);
  puts(text);
  return 0;
}
