#include "device/cpu/onednn/choice.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.hpp"

namespace oocdnn::cpu::onednn {
namespace {

using DTypes = std::array<DType, kTensors>;
using Tensors = std::array<MemoryDesc, kTensors>;

// Older processors emulate bf16, slower than they compute in float.
bool ComputesInBFloat16() {
  constexpr int kNeeded = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<int>(dnnl_get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

// Whether every filter tap meets the input at some output, on every axis, and the filter fits into
// the input without its padding.
bool UsesWholeFilter(const ConvShape& shape) {
  for (int s = 0; s < 3; ++s) {
    if (shape.in[s] < shape.Reach(s)) return false;
    for (int64_t tap = 0; tap < shape.filter[s]; ++tap) {
      const int64_t begin = tap * shape.dilation[s] - shape.pad_before[s];
      // The first output whose tap lies behind the leading padding.
      const int64_t first = std::max<int64_t>(CeilDiv(-begin, shape.stride[s]), 0);
      if (first >= shape.out[s] || begin + first * shape.stride[s] >= shape.in[s]) return false;
    }
  }
  return true;
}

std::vector<DTypes> DTypesFor(const TileOp& op) {
  std::vector<DTypes> choices;
  const bool narrow_out = op.out_dtype == DType::kBFloat16 || op.out_dtype == DType::kFloat32;
  if (op.dtype == DType::kBFloat16 && narrow_out && ComputesInBFloat16()) {
    DTypes native{op.dtype, op.dtype, op.dtype};
    native[Index(OutputOf(op.direction))] = op.out_dtype;
    choices.push_back(native);
  }
  choices.push_back({DType::kFloat32, DType::kFloat32, DType::kFloat32});
  return choices;
}

// Formats of x and y to ask for, in this order: oneDNN's own choice first, which may be one that we
// cannot address.
std::vector<dnnl_format_tag_t> FormatsFor(const View& view) {
  if (view.spatial() == 3) return {dnnl_format_tag_any, dnnl_nCdhw16c, dnnl_ndhwc, dnnl_ncdhw};
  return {dnnl_format_tag_any, dnnl_nChw16c, dnnl_nhwc, dnnl_nchw};
}

Result<Tensors> Wanted(const View& view, const DTypes& dtypes, dnnl_format_tag_t format) {
  Tensors wanted;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    const dnnl_format_tag_t tag = operand == Operand::kW ? dnnl_format_tag_any : format;
    OOC_ASSIGN(wanted[Index(operand)],
               MemoryDesc::Tagged(view.DimsOf(operand), dtypes[Index(operand)], tag));
  }
  return wanted;
}

ConvolutionCall CallWith(const TileOp& op, const View& view, const Tensors& tensors,
                         const DTypes& dtypes) {
  const ConvShape& shape = op.shape;
  ConvolutionCall call;
  call.direction = op.direction;
  call.x = tensors[Index(Operand::kX)].view();
  call.w = tensors[Index(Operand::kW)].view();
  call.y = tensors[Index(Operand::kY)].view();
  call.out_dtype = dtypes[Index(OutputOf(op.direction))];
  call.stride = view.Axes(shape.stride);
  call.dilation = view.Axes({shape.dilation[0] - 1, shape.dilation[1] - 1, shape.dilation[2] - 1});
  call.pad_before = view.Axes(shape.pad_before);
  call.pad_after = view.PadAfter();
  return call;
}

// Where a filter tap meets nothing but padding, oneDNN's compiled loops for backward filter leave
// elements unwritten and write past their buffers; oneDNN 2 also mistakes padded depth in bf16. The
// matrix product does neither.
bool GoesAstray(const TileOp& op, const PrimitiveDesc& desc) {
  if (op.direction != Direction::kBackwardFilter) return false;
  const bool depth =
      DNNL_VERSION_MAJOR < 3 && op.dtype == DType::kBFloat16 && op.shape.pad_before[0] > 0;
  return (depth || !UsesWholeFilter(op.shape)) &&
         desc.Implementation().find("gemm") == std::string::npos;
}

// Takes what `desc` says of its tensors into `choice`; a refusal says what we cannot live with.
Status Inspect(const TileOp& op, const View& view, const PrimitiveDesc& desc, int64_t workspace,
               Choice* choice) {
  const std::string name = desc.Implementation();
  if (desc.IsReference()) {
    return Error(Code::kUnsupported, "oneDNN has only a plain loop for it (%s)", name.c_str());
  }
  if (GoesAstray(op, desc)) {
    return Error(Code::kUnsupported, "oneDNN's %s is wrong for filter taps in the padding",
                 name.c_str());
  }
  const Names names = NamesOf(op.direction);
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    const int i = Index(operand);
    OOC_ASSIGN(choice->tensor[i], desc.Query(names.query[i]));
    if (operand != Operand::kW &&
        !view.ToLayout(choice->tensor[i], operand, choice->dtype[i], &choice->layout[i])) {
      return Error(Code::kUnsupported, "oneDNN's %s wants a format of %s that has no plain strides",
                   name.c_str(), Name(operand, op.direction));
    }
  }
  OOC_ASSIGN(choice->scratchpad, desc.Query(dnnl_query_scratchpad_md));
  if (choice->scratchpad.bytes() <= workspace) return {};
  return Error(Code::kOutOfMemory, "oneDNN's %s needs a scratchpad of %lld bytes, %lld are left",
               name.c_str(), static_cast<long long>(choice->scratchpad.bytes()),
               static_cast<long long>(workspace))
      .WithDetail(choice->scratchpad.bytes());
}

// The first acceptable implementation for these types and this format.
Result<Choice> ChooseFor(dnnl_engine_t engine, const TileOp& op, const View& view,
                         int64_t workspace, const DTypes& dtypes, dnnl_format_tag_t format) {
  OOC_ASSIGN(const Tensors wanted, Wanted(view, dtypes, format));
  const ConvolutionCall call = CallWith(op, view, wanted, dtypes);
  Status refusal;
  for (int skip = 0;; ++skip) {
    Result<PrimitiveDesc> desc = DescribeConvolution(engine, call, skip);
    if (!desc.ok()) return refusal.ok() ? std::move(desc).status() : refusal;
    Choice choice;
    choice.dtype = dtypes;
    Status status = Inspect(op, view, desc.value(), workspace, &choice);
    if (status.ok()) {
      choice.desc = std::move(desc).value();
      return choice;
    }
    if (refusal.ok()) refusal = std::move(status);
  }
}

}  // namespace

Names NamesOf(Direction direction) {
  Names names{{dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
              {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}};
  if (direction == Direction::kBackwardData) {
    names.query[Index(Operand::kX)] = dnnl_query_diff_src_md;
    names.argument[Index(Operand::kX)] = DNNL_ARG_DIFF_SRC;
  }
  if (direction == Direction::kBackwardFilter) {
    names.query[Index(Operand::kW)] = dnnl_query_diff_weights_md;
    names.argument[Index(Operand::kW)] = DNNL_ARG_DIFF_WEIGHTS;
  }
  if (direction != Direction::kForward) {
    names.query[Index(Operand::kY)] = dnnl_query_diff_dst_md;
    names.argument[Index(Operand::kY)] = DNNL_ARG_DIFF_DST;
  }
  return names;
}

ConvolutionCall CallOf(const TileOp& op, const View& view, const Choice& choice) {
  return CallWith(op, view, choice.tensor, choice.dtype);
}

Result<Choice> Choose(dnnl_engine_t engine, const TileOp& op, const View& view, int64_t workspace) {
  Status refusal;
  for (const DTypes& dtypes : DTypesFor(op)) {
    for (const dnnl_format_tag_t format : FormatsFor(view)) {
      Result<Choice> choice = ChooseFor(engine, op, view, workspace, dtypes, format);
      if (choice.ok()) return choice;
      if (refusal.ok()) refusal = std::move(choice).status();
    }
  }
  return refusal;
}

}  // namespace oocdnn::cpu::onednn
