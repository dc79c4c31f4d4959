#include "device/cpu/onednn/convolution.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "device/cpu/onednn/threads.hpp"

namespace oocdnn::cpu::onednn {
namespace {

constexpr int64_t kAlignment = 64;  // of the scratchpad behind a partial output

template <class T, class Sum>
void AddElements(T* sum, const T* term, int64_t count, const Sum& add) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) sum[i] = add(sum[i], term[i]);
}

}  // namespace

Result<std::shared_ptr<const Convolution>> Convolution::Make(
    const std::shared_ptr<Runtime>& runtime, const TileOp& op, int threads) {
  const TeamSize team(threads);
  std::shared_ptr<Convolution> made(new Convolution(runtime, op, threads));
  OOC_TRY(made->Prepare());
  return std::shared_ptr<const Convolution>(std::move(made));
}

Status Convolution::Prepare() {
  OOC_ASSIGN(Choice choice, Choose(runtime_->engine(), op_, view_, op_.workspace_limit));
  implementation_ = choice.desc->Implementation();
  OOC_ASSIGN(writing_, Compile(*choice.desc, choice));
  if (op_.accumulates) CompileAdding(choice);
  if (op_.accumulates && !adding_) {
    partial_bytes_ = RoundUp(choice.tensor[Index(output_)].bytes(), kAlignment);
  }
  workspace_bytes_ = std::max(workspace_bytes_, choice.scratchpad.bytes()) + partial_bytes_;
  if (workspace_bytes_ > op_.workspace_limit) {
    return Error(Code::kOutOfMemory,
                 "oneDNN's %s needs a workspace of %lld bytes (%lld for a partial sum), %lld are "
                 "allowed",
                 implementation_.c_str(), static_cast<long long>(workspace_bytes_),
                 static_cast<long long>(partial_bytes_),
                 static_cast<long long>(op_.workspace_limit))
        .WithDetail(workspace_bytes_);
  }
  return MakeLayouts(choice);
}

Result<Primitive> Convolution::Compile(const PrimitiveDesc& desc, const Choice& choice) const {
  const Names names = NamesOf(op_.direction);
  std::vector<Argument> arguments;
  for (int i = 0; i < kTensors; ++i) {
    OOC_ASSIGN(MemoryDesc tensor, MemoryDesc::CopyOf(choice.tensor[i].view()));
    arguments.push_back({names.argument[i], std::move(tensor)});
  }
  OOC_ASSIGN(MemoryDesc scratchpad, desc.Query(dnnl_query_scratchpad_md));
  arguments.push_back({DNNL_ARG_SCRATCHPAD, std::move(scratchpad)});
  return Primitive::Create(runtime_->engine(), desc, std::move(arguments));
}

// Only a forward convolution can add to its output. Where oneDNN has none for these formats, or one
// that needs more workspace than we may take, the sum is ours to make.
void Convolution::CompileAdding(const Choice& choice) {
  if (op_.direction != Direction::kForward) return;
  ConvolutionCall call = CallOf(op_, view_, choice);
  call.adds = true;
  const Result<PrimitiveDesc> desc = DescribeConvolution(runtime_->engine(), call, 0);
  if (!desc.ok() || desc.value().IsReference()) return;
  const Result<MemoryDesc> scratchpad = desc.value().Query(dnnl_query_scratchpad_md);
  if (!scratchpad.ok() || scratchpad.value().bytes() > op_.workspace_limit) return;
  Result<Primitive> primitive = Compile(desc.value(), choice);
  if (!primitive.ok()) return;
  adding_ = std::move(primitive).value();
  workspace_bytes_ = scratchpad.value().bytes();
}

Status Convolution::MakeLayouts(const Choice& choice) {
  constexpr int kFilter = Index(Operand::kW);
  layout_ = choice.layout;
  OOC_ASSIGN(filter_, FilterLayout::Make(runtime_, view_, choice.tensor[kFilter],
                                         op_.shape.DimsOf(Operand::kW, op_.direction),
                                         choice.dtype[kFilter], threads_, output_ == Operand::kW));
  layout_[kFilter] = filter_->layout();
  return {};
}

Status Convolution::RunOne(const Primitive& primitive, const RunArgs& args, void* output) const {
  std::array<void*, kTensors> tensor{};
  for (int i = 0; i < kTensors; ++i) tensor[static_cast<size_t>(i)] = args.tile[i];
  tensor[Index(output_)] = output;
  void* const scratchpad = workspace_bytes_ > partial_bytes_
                               ? static_cast<std::byte*>(args.workspace) + partial_bytes_
                               : nullptr;
  return primitive.Run(runtime_->stream(), {tensor[0], tensor[1], tensor[2], scratchpad});
}

Status Convolution::Run(const RunArgs& args) const {
  const TeamSize team(threads_);
  OOC_TRY(team.Start());
  void* const output = args.tile[Index(output_)];
  if (!args.accumulate) return RunOne(writing_, args, output);
  if (adding_) return RunOne(*adding_, args, output);
  OOC_TRY(RunOne(writing_, args, args.workspace));
  Add(output, args.workspace);
  return {};
}

// Over the whole tile: the lanes behind the last channel are zero in both.
void Convolution::Add(void* sum, const void* term) const {
  const TileLayout& layout = layout_[Index(output_)];
  const int64_t count = layout.bytes / SizeOf(layout.dtype);
  if (layout.dtype == DType::kBFloat16) {
    AddElements(static_cast<BFloat16*>(sum), static_cast<const BFloat16*>(term), count,
                [](BFloat16 a, BFloat16 b) { return ToBFloat16(ToFloat(a) + ToFloat(b)); });
    return;
  }
  AddElements(static_cast<float*>(sum), static_cast<const float*>(term), count,
              [](float a, float b) { return a + b; });
}

}  // namespace oocdnn::cpu::onednn
