// Runtime: what all convolutions of one engine share: oneDNN's engine and stream, the reorders made
// so far, and a buffer for transfers of filters.
//
// Thread rule: Reorder may be called by any thread; Scratch belongs to the thread that runs copies
// and engines.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cpu/onednn/primitives.hpp"

namespace oocdnn::cpu::onednn {

// A change of format: shapes and strides by value, so that equal ones are made once. Tiles have an
// inner block of the dimension `block_dim`; plain tensors have block 1.
struct PlainFormat {
  DType dtype = DType::kFloat32;
  Extents stride;
  auto operator<=>(const PlainFormat&) const = default;
};

class Runtime {
 public:
  static Result<std::shared_ptr<Runtime>> Create();

  [[nodiscard]] dnnl_engine_t engine() const { return engine_.get(); }
  [[nodiscard]] dnnl_stream_t stream() const { return stream_.get(); }
  // At least `bytes` bytes that stay until the next call; null where the host has none.
  std::byte* Scratch(int64_t bytes);

 private:
  EngineHandle engine_;
  StreamHandle stream_;
  std::unique_ptr<std::byte[]> scratch_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace oocdnn::cpu::onednn
