// Owners of oneDNN's handles, and its status codes as ours.
#pragma once

#include <dnnl.h>

#include <memory>
#include <type_traits>

#include "base/status.hpp"

namespace oocdnn::cpu::onednn {

template <class T, auto kDestroy>
struct Destroyer {
  using pointer = T;
  void operator()(T handle) const { kDestroy(handle); }
};
template <class T, auto kDestroy>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroyer<T, kDestroy>>;

using EngineHandle = Handle<dnnl_engine_t, dnnl_engine_destroy>;
using StreamHandle = Handle<dnnl_stream_t, dnnl_stream_destroy>;
using MemoryHandle = Handle<dnnl_memory_t, dnnl_memory_destroy>;
using AttrHandle = Handle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOpsHandle = Handle<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using PrimitiveHandle = Handle<dnnl_primitive_t, dnnl_primitive_destroy>;
using PrimitiveDescHandle = Handle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;

// Ok, or oneDNN's answer with `what` in front: kUnsupported where it refuses a problem.
Status Check(dnnl_status_t status, const char* what);

}  // namespace oocdnn::cpu::onednn
