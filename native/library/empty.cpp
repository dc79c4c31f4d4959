#include "library/empty.hpp"

#include <algorithm>
#include <vector>

#include "base/checked.hpp"
#include "exec/staging.hpp"
#include "library/elements.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

template <class T>
void Scale(T* data, const Dims& dims, const Dims& stride, double beta) {
  ForEachElement(dims, stride, stride, [=](int64_t at, int64_t) {
    const auto value = static_cast<double>(data[at]);
    data[at] = beta == 0.0 ? T{0} : static_cast<T>(beta * value);
  });
}

// A 16-bit element with the arithmetic of a number, so that Scale serves every type.
struct Half {
  Float16 value{};
  Half(int) {}  // NOLINT: zero
  explicit Half(double number) : value(ToFloat16(static_cast<float>(number))) {}
  explicit operator double() const { return ToFloat(value); }
};
struct Brain {
  BFloat16 value{};
  Brain(int) {}  // NOLINT: zero
  explicit Brain(double number) : value(ToBFloat16(static_cast<float>(number))) {}
  explicit operator double() const { return ToFloat(value); }
};

void ScaleAny(void* data, DType dtype, const Dims& dims, const Dims& stride, double beta) {
  switch (dtype) {
    case DType::kFloat32: return Scale(static_cast<float*>(data), dims, stride, beta);
    case DType::kFloat64: return Scale(static_cast<double*>(data), dims, stride, beta);
    case DType::kFloat16: return Scale(static_cast<Half*>(data), dims, stride, beta);
    case DType::kBFloat16: return Scale(static_cast<Brain*>(data), dims, stride, beta);
    case DType::kByte: return;
  }
}

// view = beta * view, by a pass over zeros that finishes with the old values.
Status ScaleOnDevice(Device& device, Arena& arena, const TensorView& view, Operand operand,
                     const Dims& dims, double beta) {
  TileLayout layout;
  layout.dtype = view.dtype;
  layout.shape = dims;
  layout.stride = DenseStrides(dims);
  layout.bytes = SizeOf(view.dtype);
  for (const int64_t extent : dims) layout.bytes = Mul(layout.bytes, extent);
  Offsets offsets(device.capabilities().alignment);
  const int64_t out = offsets.Book(layout.bytes), old = offsets.Book(layout.bytes);
  OOC_TRY(arena.Reserve(offsets.total()));
  OOC_ASSIGN(const OwnedStream stream, MakeStream(device, "empty"));
  Transfer transfer;
  transfer.view = view;
  transfer.operand = operand;
  transfer.box = {{}, dims, {}, dims};
  transfer.tile_end = dims;
  transfer.tile = arena.At(out);
  transfer.layout = &layout;
  OOC_TRY(device.Fill(stream.get(), transfer.tile, layout.bytes, 0));
  if (beta != 0.0) {
    Transfer fetch = transfer;
    fetch.tile = arena.At(old);
    OOC_TRY(device.Fetch(stream.get(), fetch));
    FinishArgs finish;
    finish.out = transfer.tile;
    finish.operand = operand;
    finish.layout = &layout;
    finish.old = fetch.tile;
    finish.beta = beta;
    OOC_TRY(device.Finish(stream.get(), finish));
  }
  OOC_TRY(device.Drain(stream.get(), transfer));
  return device.SynchronizeStream(stream.get());
}

// One output: a sum of nothing, and beta times what was there.
Status WriteEmpty(Device& device, const Problem& problem, const OperandViews& tensors, Arena& arena,
                  Operand output) {
  const TensorView& tensor = tensors[Index(output)];
  const Dims dims = problem.DimsOf(output);
  if (std::count(dims.begin(), dims.end(), 0) > 0) return {};
  if (IsReached(tensor.location.tier)) {
    return ScaleOnDevice(device, arena, tensor, output, dims, problem.beta);
  }
  if (!tensor.in_file()) {
    ScaleAny(tensor.data, tensor.dtype, dims, tensor.stride, problem.beta);
    return {};
  }
  const Packing packing = PackingOf(tensor.dtype, tensor.stride, dims);
  const FileTensor file{tensor.location.fd, tensor.location.offset, packing};
  const PackedBox packed = PackedLayout(packing, dims);
  std::vector<char> box(static_cast<size_t>(packed.bytes), 0);
  if (problem.beta != 0.0) OOC_TRY(ReadBox(file, {}, dims, box.data()));
  ScaleAny(box.data(), packing.dtype, dims, packed.stride, problem.beta);
  return WriteBox(file, {}, dims, box.data());
}

}  // namespace

Status RunEmpty(Device& device, const Problem& problem, const OperandViews& tensors, Arena& arena) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (problem.Writes(operand)) OOC_TRY(WriteEmpty(device, problem, tensors, arena, operand));
  }
  return {};
}

}  // namespace oocdnn
