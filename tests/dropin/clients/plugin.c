/* A library that needs cuDNN, for programs that open it as they open a plug-in. */
#include <cudnn.h>

size_t plugin_version(void);
size_t plugin_version(void) { return cudnnGetVersion(); }
