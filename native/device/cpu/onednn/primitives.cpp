#include "device/cpu/onednn/primitives.hpp"

#include <array>
#include <utility>

namespace oocdnn::cpu::onednn {
namespace {

constexpr const char* kConvolution = "a convolution of this shape";
constexpr const char* kAttributes = "attributes of a convolution";

// The caller owns the scratchpad; `call.adds` makes the output a summand.
Result<AttrHandle> MakeAttributes(const ConvolutionCall& call) {
  dnnl_primitive_attr_t raw = nullptr;
  OOC_TRY(Check(dnnl_primitive_attr_create(&raw), kAttributes));
  AttrHandle attributes(raw);
  OOC_TRY(
      Check(dnnl_primitive_attr_set_scratchpad_mode(raw, dnnl_scratchpad_mode_user), kAttributes));
  if (!call.adds) return attributes;
  dnnl_post_ops_t raw_ops = nullptr;
  OOC_TRY(Check(dnnl_post_ops_create(&raw_ops), kAttributes));
  const PostOpsHandle ops(raw_ops);
  const dnnl_data_type_t type = DataTypeOf(call.out_dtype);
#if DNNL_VERSION_MAJOR >= 3
  OOC_TRY(Check(dnnl_post_ops_append_sum(raw_ops, 1.0f, 0, type), kAttributes));
#else
  OOC_TRY(Check(dnnl_post_ops_append_sum_v3(raw_ops, 1.0f, 0, type), kAttributes));
#endif
  OOC_TRY(Check(dnnl_primitive_attr_set_post_ops(raw, raw_ops), kAttributes));
  return attributes;
}

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t Describe(dnnl_engine_t engine, const ConvolutionCall& call,
                       dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t* desc) {
  const int64_t* const stride = call.stride.data();
  const int64_t* const dilation = call.dilation.data();
  const int64_t* const before = call.pad_before.data();
  const int64_t* const after = call.pad_after.data();
  switch (call.direction) {
    case Direction::kForward:
      return dnnl_convolution_forward_primitive_desc_create(
          desc, engine, dnnl_forward_training, dnnl_convolution_direct, call.x, call.w, nullptr,
          call.y, stride, dilation, before, after, attributes);
    case Direction::kBackwardData:
      return dnnl_convolution_backward_data_primitive_desc_create(
          desc, engine, dnnl_convolution_direct, call.x, call.w, call.y, stride, dilation, before,
          after, nullptr, attributes);
    case Direction::kBackwardFilter:
      return dnnl_convolution_backward_weights_primitive_desc_create(
          desc, engine, dnnl_convolution_direct, call.x, call.w, nullptr, call.y, stride, dilation,
          before, after, nullptr, attributes);
    case Direction::kBackwardBias: break;
  }
  return dnnl_unimplemented;
}

dnnl_status_t DescribeNth(dnnl_engine_t engine, const ConvolutionCall& call,
                          dnnl_primitive_attr_t attributes, int skip, PrimitiveDescHandle* desc) {
  dnnl_primitive_desc_t raw = nullptr;
  dnnl_status_t status = Describe(engine, call, attributes, &raw);
  if (status == dnnl_success) desc->reset(raw);
  for (; status == dnnl_success && skip > 0; --skip) status = dnnl_primitive_desc_next_impl(raw);
  return status == dnnl_last_impl_reached ? dnnl_unimplemented : status;
}

#else

dnnl_status_t Describe(const ConvolutionCall& call, dnnl_convolution_desc_t* desc) {
  const int64_t* const stride = call.stride.data();
  const int64_t* const dilation = call.dilation.data();
  const int64_t* const before = call.pad_before.data();
  const int64_t* const after = call.pad_after.data();
  switch (call.direction) {
    case Direction::kForward:
      return dnnl_dilated_convolution_forward_desc_init(
          desc, dnnl_forward_training, dnnl_convolution_direct, call.x, call.w, nullptr, call.y,
          stride, dilation, before, after);
    case Direction::kBackwardData:
      return dnnl_dilated_convolution_backward_data_desc_init(
          desc, dnnl_convolution_direct, call.x, call.w, call.y, stride, dilation, before, after);
    case Direction::kBackwardFilter:
      return dnnl_dilated_convolution_backward_weights_desc_init(desc, dnnl_convolution_direct,
                                                                 call.x, call.w, nullptr, call.y,
                                                                 stride, dilation, before, after);
    case Direction::kBackwardBias: break;
  }
  return dnnl_unimplemented;
}

dnnl_status_t DescribeNth(dnnl_engine_t engine, const ConvolutionCall& call,
                          dnnl_primitive_attr_t attributes, int skip, PrimitiveDescHandle* desc) {
  dnnl_convolution_desc_t convolution;
  dnnl_status_t status = Describe(call, &convolution);
  if (status != dnnl_success) return status;
  dnnl_primitive_desc_iterator_t raw = nullptr;
  status = dnnl_primitive_desc_iterator_create(&raw, &convolution, attributes, engine, nullptr);
  if (status != dnnl_success) return status;
  const Handle<dnnl_primitive_desc_iterator_t, dnnl_primitive_desc_iterator_destroy> iterator(raw);
  for (; status == dnnl_success && skip > 0; --skip) {
    status = dnnl_primitive_desc_iterator_next(raw);
  }
  if (status == dnnl_success) desc->reset(dnnl_primitive_desc_iterator_fetch(raw));
  return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

#endif

}  // namespace

Result<MemoryDesc> PrimitiveDesc::Query(dnnl_query_t what) const {
  return MemoryDesc::CopyOf(dnnl_primitive_desc_query_md(get(), what, 0));
}

std::string PrimitiveDesc::Implementation() const {
  const char* name = nullptr;
  dnnl_primitive_desc_query(get(), dnnl_query_impl_info_str, 0, &name);
  return name == nullptr ? "" : name;
}

bool PrimitiveDesc::IsReference() const {
  const std::string name = Implementation();
  return name.find("ref") != std::string::npos || name.find("simple") != std::string::npos;
}

Result<PrimitiveDesc> DescribeConvolution(dnnl_engine_t engine, const ConvolutionCall& call,
                                          int skip) {
  OOC_ASSIGN(const AttrHandle attributes, MakeAttributes(call));
  PrimitiveDescHandle desc;
  OOC_TRY(Check(DescribeNth(engine, call, attributes.get(), skip, &desc), kConvolution));
  return PrimitiveDesc(std::move(desc));
}

Result<PrimitiveDesc> DescribeReorder(dnnl_engine_t engine, const MemoryDesc& from,
                                      const MemoryDesc& to) {
  dnnl_primitive_desc_t raw = nullptr;
  OOC_TRY(Check(
      dnnl_reorder_primitive_desc_create(&raw, from.view(), engine, to.view(), engine, nullptr),
      "a change of format"));
  return PrimitiveDesc(PrimitiveDescHandle(raw));
}

Result<Primitive> Primitive::Create(dnnl_engine_t engine, const PrimitiveDesc& desc,
                                    std::vector<Argument> arguments) {
  dnnl_primitive_t raw = nullptr;
  OOC_TRY(Check(dnnl_primitive_create(&raw, desc.get()), "compiling a primitive"));
  Primitive primitive;
  primitive.engine_ = engine;
  primitive.handle_.reset(raw);
  primitive.arguments_ = std::move(arguments);
  return primitive;
}

Status Primitive::Run(dnnl_stream_t stream, std::initializer_list<void*> memory) const {
  constexpr size_t kMost = 8;
  std::array<MemoryHandle, kMost> owner;
  std::array<dnnl_exec_arg_t, kMost> bound{};
  size_t count = 0;
  for (void* const data : memory) {
    const Argument& argument = arguments_[count];
    dnnl_memory_t raw = nullptr;
    OOC_TRY(Check(dnnl_memory_create(&raw, argument.desc.view(), engine_, data),
                  "binding memory to an argument"));
    owner[count].reset(raw);
    bound[count] = {argument.name, raw};
    ++count;
  }
  OOC_TRY(
      Check(dnnl_primitive_execute(handle_.get(), stream, static_cast<int>(count), bound.data()),
            "running a primitive"));
  return Check(dnnl_stream_wait(stream), "waiting for a primitive");
}

}  // namespace oocdnn::cpu::onednn
