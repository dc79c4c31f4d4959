// A convolution through the C interface, with its arrays and the result that it must have.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capi/oocdnn.h"

namespace oocdnn::exercise {

// A context that destroys itself.
struct DestroyContext {
  void operator()(oocdnn_context* context) const { oocdnn_destroy(context); }
};
using OwnedContext = std::unique_ptr<oocdnn_context, DestroyContext>;

// Options with a budget that makes tiles of every convolution here, and no profile of the machine.
oocdnn_options SmallOptions();
// Null where the library refuses.
OwnedContext Open(const oocdnn_options& options);

class Convolution {
 public:
  // The seed decides direction, rank and sizes. All values are small integers, so that the result
  // is exact whatever the plan.
  explicit Convolution(unsigned seed);

  // Any thread. Whatever ends well must have the right result.
  [[nodiscard]] oocdnn_status Run(oocdnn_context* context) const;
  // The same with every operand in a file of its own.
  [[nodiscard]] oocdnn_status RunInFiles(oocdnn_context* context) const;
  // The same, interrupted before the first tile.
  [[nodiscard]] oocdnn_status Interrupt(oocdnn_context* context) const;
  // The problem string.
  [[nodiscard]] std::string Text() const;

 private:
  enum Operand : int { kX, kW, kY, kBias, kOperands };
  struct Array {
    std::vector<int64_t> shape;
    std::vector<float> values;
    [[nodiscard]] oocdnn_tensor Tensor(float* data) const;
  };
  using Tensors = std::array<oocdnn_tensor, kOperands>;

  [[nodiscard]] Tensors InMemory(std::vector<float>* output) const;
  [[nodiscard]] oocdnn_operands OperandsOf(const Tensors& tensors) const;
  [[nodiscard]] oocdnn_status RunOn(oocdnn_context* context, const oocdnn_convolution& call,
                                    const Tensors& tensors) const;
  void Compare(const std::vector<float>& result) const;

  oocdnn_convolution call_{};
  std::array<Array, kOperands> arrays_;
  Operand output_ = kY;
  std::vector<float> expected_;
};

}  // namespace oocdnn::exercise
