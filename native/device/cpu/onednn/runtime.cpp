#include "device/cpu/onednn/runtime.hpp"

#include <new>

namespace oocdnn::cpu::onednn {

Result<std::shared_ptr<Runtime>> Runtime::Create() {
  auto runtime = std::make_shared<Runtime>();
  dnnl_engine_t engine = nullptr;
  OOC_TRY(Check(dnnl_engine_create(&engine, dnnl_cpu, 0), "opening oneDNN's CPU engine"));
  runtime->engine_.reset(engine);
  dnnl_stream_t stream = nullptr;
  OOC_TRY(Check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags),
                "opening a oneDNN stream"));
  runtime->stream_.reset(stream);
  return runtime;
}

std::byte* Runtime::Scratch(int64_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();  // first, so that both are never held at once
    scratch_.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
    scratch_bytes_ = scratch_ ? bytes : 0;
  }
  return scratch_.get();
}

}  // namespace oocdnn::cpu::onednn
