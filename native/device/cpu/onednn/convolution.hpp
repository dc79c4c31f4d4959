// Convolution: one TileOp prepared by oneDNN. Immutable; shared by all executables of that TileOp.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "device/cpu/onednn/choice.hpp"
#include "device/cpu/onednn/filter_layout.hpp"
#include "device/cpu/onednn/runtime.hpp"

namespace oocdnn::cpu::onednn {

class Convolution {
 public:
  // `threads` is the size of the team, here and in every Run.
  static Result<std::shared_ptr<const Convolution>> Make(const std::shared_ptr<Runtime>& runtime,
                                                         const TileOp& op, int threads);

  // oneDNN's name for what it does: "jit:avx512_core", ...
  [[nodiscard]] const std::string& implementation() const { return implementation_; }
  [[nodiscard]] int64_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] const TileLayout& layout(Operand operand) const { return layout_[Index(operand)]; }
  Status Run(const RunArgs& args) const;

 private:
  Convolution(std::shared_ptr<Runtime> runtime, const TileOp& op, int threads)
      : runtime_(std::move(runtime)),
        op_(op),
        view_(op.shape),
        threads_(threads),
        output_(OutputOf(op.direction)) {}
  Status Prepare();
  Result<Primitive> Compile(const PrimitiveDesc& desc, const Choice& choice) const;
  void CompileAdding(const Choice& choice);
  Status MakeLayouts(const Choice& choice);
  Status RunOne(const Primitive& primitive, const RunArgs& args, void* output) const;
  void Add(void* sum, const void* term) const;

  std::shared_ptr<Runtime> runtime_;
  TileOp op_;
  View view_;
  int threads_;
  Operand output_;
  std::string implementation_;
  std::array<TileLayout, kTensors> layout_;
  std::unique_ptr<FilterLayout> filter_;
  Primitive writing_;                // output = ...
  std::optional<Primitive> adding_;  // output += ..., where oneDNN does that itself
  int64_t partial_bytes_ = 0;        // of an output in the workspace, which we then add
  int64_t workspace_bytes_ = 0;      // the partial output, then the scratchpad
};

}  // namespace oocdnn::cpu::onednn
