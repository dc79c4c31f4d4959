// Handles, versions and texts where there is no cuDNN.
#include <cstdio>

#include "shim/descriptors.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

size_t GetVersion() { return CUDNN_VERSION; }
size_t NoVersion() { return 0; }
const char* GetErrorString(cudnnStatus_t status) { return NameOf(status); }

void GetLastErrorString(char* message, size_t bytes) {
  if (message != nullptr && bytes > 0) std::snprintf(message, bytes, "%s", LastText());
}

cudnnStatus_t GetProperty(libraryPropertyType type, int* value) {
  OOC_NEED(value != nullptr, "the place for the value is missing (null)");
  switch (type) {
    case MAJOR_VERSION: *value = CUDNN_MAJOR; return CUDNN_STATUS_SUCCESS;
    case MINOR_VERSION: *value = CUDNN_MINOR; return CUDNN_STATUS_SUCCESS;
    case PATCH_LEVEL: *value = CUDNN_PATCHLEVEL; return CUDNN_STATUS_SUCCESS;
  }
  return Refuse(CUDNN_STATUS_BAD_PARAM, "there is no property %d", static_cast<int>(type));
}

cudnnStatus_t SetStream(cudnnHandle_t handle, cudaStream_t stream) {
  OOC_NEED(handle != nullptr, "the handle is null");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  OOC_NEED(handle != nullptr && stream != nullptr, "the handle or the place is null");
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t VersionCheck() { return CUDNN_STATUS_SUCCESS; }

}  // namespace

void ServeHandles(Served* served) {
  OOC_SERVE(served, cudnnGetVersion, GetVersion);
  OOC_SERVE(served, cudnnGetMaxDeviceVersion, NoVersion);
  OOC_SERVE(served, cudnnGetCudartVersion, NoVersion);
  OOC_SERVE(served, cudnnGetErrorString, GetErrorString);
  OOC_SERVE(served, cudnnGetLastErrorString, GetLastErrorString);
  OOC_SERVE(served, cudnnGetProperty, GetProperty);
  OOC_SERVE(served, cudnnCreate, Create<cudnnContext>);
  OOC_SERVE(served, cudnnDestroy, Destroy<cudnnContext>);
  OOC_SERVE(served, cudnnSetStream, SetStream);
  OOC_SERVE(served, cudnnGetStream, GetStream);
  OOC_SERVE(served, cudnnGraphVersionCheck, VersionCheck);
  OOC_SERVE(served, cudnnOpsVersionCheck, VersionCheck);
  OOC_SERVE(served, cudnnCnnVersionCheck, VersionCheck);
  OOC_SERVE(served, cudnnAdvVersionCheck, VersionCheck);
}

}  // namespace oocdnn::shim
