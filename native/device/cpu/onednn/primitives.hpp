// Primitives: oneDNN's compiled operations, convolution and reorder.
//
// A PrimitiveDesc says what oneDNN would do (formats, scratchpad, implementation); a Primitive does
// it. Both are immutable once made. Only primitives.cpp knows the calls that oneDNN 2 and 3 do not
// share.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "device/cpu/onednn/memory_desc.hpp"
#include "geom/problem.hpp"

namespace oocdnn::cpu::onednn {

class PrimitiveDesc {
 public:
  explicit PrimitiveDesc(PrimitiveDescHandle handle) : handle_(std::move(handle)) {}
  // The format of one argument: dnnl_query_src_md and the like.
  [[nodiscard]] Result<MemoryDesc> Query(dnnl_query_t what) const;
  [[nodiscard]] std::string Implementation() const;
  // Whether this is one of oneDNN's plain loops, which are slower than our own engines.
  [[nodiscard]] bool IsReference() const;
  [[nodiscard]] dnnl_primitive_desc_t get() const { return handle_.get(); }

 private:
  PrimitiveDescHandle handle_;
};

// A convolution as oneDNN is asked for it: a dilation of 0 means none.
struct ConvolutionCall {
  Direction direction = Direction::kForward;
  MemoryDescView x{}, w{}, y{};
  Extents stride, dilation, pad_before, pad_after;
  bool adds = false;  // y += instead of y =; forward only
  DType out_dtype = DType::kFloat32;
};

// oneDNN's implementation number `skip` (0: the one that it likes best) for `call`.
Result<PrimitiveDesc> DescribeConvolution(dnnl_engine_t engine, const ConvolutionCall& call,
                                          int skip);
Result<PrimitiveDesc> DescribeReorder(dnnl_engine_t engine, const MemoryDesc& from,
                                      const MemoryDesc& to);

// What an argument of a primitive is called (DNNL_ARG_SRC, ...), and how it lies in memory.
struct Argument {
  int name = 0;
  MemoryDesc desc;
};

class Primitive {
 public:
  Primitive() = default;
  static Result<Primitive> Create(dnnl_engine_t engine, const PrimitiveDesc& desc,
                                  std::vector<Argument> arguments);
  // Runs it to its end. `memory` is in the order of the arguments.
  Status Run(dnnl_stream_t stream, std::initializer_list<void*> memory) const;

 private:
  dnnl_engine_t engine_ = nullptr;
  PrimitiveHandle handle_;
  std::vector<Argument> arguments_;
};

}  // namespace oocdnn::cpu::onednn
