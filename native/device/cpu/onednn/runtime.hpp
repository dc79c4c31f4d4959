// Runtime: what all convolutions of one engine share: oneDNN's engine and stream, and a buffer for
// transfers of filters. Lives until the last of them is gone.
#pragma once

#include <cstddef>
#include <memory>

#include "device/cpu/onednn/handles.hpp"

namespace oocdnn::cpu::onednn {

class Runtime {
 public:
  static Result<std::shared_ptr<Runtime>> Create();

  [[nodiscard]] dnnl_engine_t engine() const { return engine_.get(); }
  [[nodiscard]] dnnl_stream_t stream() const { return stream_.get(); }
  // At least `bytes` bytes, kept until the next call; null where the host has none. Only for the
  // one thread that runs copies and engines.
  std::byte* Scratch(int64_t bytes);

 private:
  EngineHandle engine_;
  StreamHandle stream_;
  std::unique_ptr<std::byte[]> scratch_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace oocdnn::cpu::onednn
