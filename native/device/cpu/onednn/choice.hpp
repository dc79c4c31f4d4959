// Choice: which of oneDNN's implementations, formats and element types serve one tile.
#pragma once

#include <array>
#include <optional>

#include "device/cpu/onednn/primitives.hpp"
#include "device/cpu/onednn/view.hpp"

namespace oocdnn::cpu::onednn {

constexpr int kTensors = 3;  // kX, kW, kY, by their operand's index

struct Choice {
  std::optional<PrimitiveDesc> desc;
  std::array<MemoryDesc, kTensors> tensor;
  MemoryDesc scratchpad;
  std::array<DType, kTensors> dtype{};
  std::array<TileLayout, kTensors> layout;  // of kX and kY

  [[nodiscard]] MemoryDescView view(Operand operand) const { return tensor[Index(operand)].view(); }
};

// The call that `choice` answers, in its own formats.
ConvolutionCall CallOf(const TileOp& op, const View& view, const Choice& choice);

// The first implementation that is worth having: faster than a plain loop, with formats of x and y
// that the device can address, and a scratchpad of at most `workspace` bytes. Element types are the
// tile's own where oneDNN computes in them here, else float.
Result<Choice> Choose(dnnl_engine_t engine, const TileOp& op, const View& view, int64_t workspace);

// The names that oneDNN gives to kX, kW and kY.
struct Names {
  std::array<dnnl_query_t, kTensors> query;
  std::array<int, kTensors> argument;
};
Names NamesOf(Direction direction);

}  // namespace oocdnn::cpu::onednn
