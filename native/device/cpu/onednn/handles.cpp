#include "device/cpu/onednn/handles.hpp"

namespace oocdnn::cpu::onednn {

Status Check(dnnl_status_t status, const char* what) {
  switch (status) {
    case dnnl_success: return {};
    case dnnl_out_of_memory:
      return Error(Code::kOutOfMemory, "%s: oneDNN found no memory for its own tables", what);
    case dnnl_unimplemented:
      return Error(Code::kUnsupported, "%s: oneDNN has no implementation for it here", what);
    case dnnl_invalid_arguments:
      return Error(Code::kUnsupported, "%s: oneDNN does not accept these sizes", what);
    default: break;
  }
  return Error(Code::kDeviceError, "%s: oneDNN failed with status %d", what,
               static_cast<int>(status));
}

}  // namespace oocdnn::cpu::onednn
