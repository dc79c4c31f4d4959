#include "library/operands.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/checked.hpp"
#include "library/call_pins.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

// The elements a tensor spans from its lowest to its highest address, and where its first is.
struct Reach {
  int64_t low = 0, high = 0;  // in elements, from element (0, ..., 0); high is exclusive
};

Reach ReachOf(const Dims& dims, const Dims& stride) {
  if (std::count(dims.begin(), dims.end(), 0) > 0) return {};
  Reach reach{0, 1};
  for (int d = 0; d < 6; ++d) {
    const int64_t span = Mul(dims[d] - 1, stride[d]);
    int64_t& end = span < 0 ? reach.low : reach.high;
    end = Add(end, span);
  }
  return reach;
}

// The address, or the offset in the file, of element (0, ..., 0).
int64_t BaseOf(const TensorView& tensor) {
  if (tensor.in_file()) return tensor.location.offset;
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(tensor.data));
}

Status CheckFile(const Problem& problem, const OperandViews& tensors, Operand operand) {
  const TensorView& tensor = tensors[Index(operand)];
  const char* name = Name(operand, problem.direction);
  struct stat info{};
  if (fstat(tensor.location.fd, &info) != 0) {
    const int number = errno;
    return Error(Code::kFileError, "%s: the file cannot be examined: %s", name,
                 std::strerror(number))
        .WithDetail(number);
  }
  const AddressRange range = AddressesOf(problem, tensors, operand);
  if (range.begin < 0 || range.end > info.st_size) {
    return Error(Code::kInvalidProblem,
                 "%s needs bytes %lld to %lld of its file, which has only %lld; the file is too "
                 "short for this shape",
                 name, static_cast<long long>(range.begin), static_cast<long long>(range.end),
                 static_cast<long long>(info.st_size));
  }
  return {};
}

bool SameStorage(const TensorView& a, const TensorView& b) {
  if (a.in_file() != b.in_file()) return false;
  if (!a.in_file()) return true;
  struct stat first{}, second{};
  return fstat(a.location.fd, &first) == 0 && fstat(b.location.fd, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// An operand of a call.
struct Member {
  const Problem& problem;
  const OperandViews& tensors;
  Operand operand;
};

StridedBox BoxOf(const Member& member) {
  return BoxOf(member.problem, member.tensors, member.operand);
}

bool Overlap(const Member& a, const Member& b) {
  const TensorView &first = a.tensors[Index(a.operand)], &second = b.tensors[Index(b.operand)];
  return SameStorage(first, second) && SharesBytes(BoxOf(a), BoxOf(b));
}

// A residual that is the output itself is read tile by tile before the tile is written.
bool InPlaceResidual(const Problem& problem, const OperandViews& tensors, Operand input,
                     Operand output) {
  const TensorView &a = tensors[Index(input)], &b = tensors[Index(output)];
  const bool same_place = a.in_file() ? a.location.offset == b.location.offset : a.data == b.data;
  return input == Operand::kResidual && output == problem.sum() && same_place &&
         a.stride == b.stride;
}

template <class T>
void Scale(T* data, const Dims& dims, const Dims& stride, double beta, int dimension = 0) {
  if (dimension == 6) {
    const auto value = static_cast<double>(*data);
    *data = beta == 0.0 ? T{0} : static_cast<T>(beta * value);
    return;
  }
  for (int64_t i = 0; i < dims[dimension]; ++i) {
    Scale(data + i * stride[dimension], dims, stride, beta, dimension + 1);
  }
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

// Nothing that is written shares memory with anything else.
Status CheckOutput(const Problem& problem, const OperandViews& tensors, Operand output,
                   const Inner& inner) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool other = operand != Operand::kOld && operand != output && !inner[i];
    if (!other || !problem.Has(operand)) continue;
    if (!Overlap({problem, tensors, operand}, {problem, tensors, output})) continue;
    if (InPlaceResidual(problem, tensors, operand, output)) continue;
    return Error(Code::kInvalidProblem,
                 "%s overlaps %s; a convolution cannot run in place, pass another output",
                 Name(output, problem.direction), Name(operand, problem.direction));
  }
  return {};
}

Status CheckAligned(const Problem& problem, const OperandViews& tensors, Operand operand) {
  const TensorView& view = tensors[Index(operand)];
  const auto size = static_cast<uintptr_t>(SizeOf(view.dtype));
  if (reinterpret_cast<uintptr_t>(view.data) % size == 0) return {};
  return Error(Code::kInvalidProblem,
               "%s begins at address %p, which is no multiple of its elements' %zu bytes; copy it "
               "to one that is",
               Name(operand, problem.direction), view.data, static_cast<size_t>(size));
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

AddressRange AddressesOf(const Problem& problem, const OperandViews& tensors, Operand operand) {
  const TensorView& tensor = tensors[Index(operand)];
  const Reach reach = ReachOf(problem.DimsOf(operand), tensor.stride);
  const int64_t size = SizeOf(tensor.dtype);
  const int64_t base = BaseOf(tensor);
  return {Add(base, Mul(reach.low, size)), Add(base, Mul(reach.high, size))};
}

StridedBox BoxOf(const Problem& problem, const OperandViews& tensors, Operand operand) {
  const TensorView& tensor = tensors[Index(operand)];
  const int64_t element = SizeOf(tensor.dtype);
  Dims stride = tensor.stride;
  for (int64_t& step : stride) step = Mul(step, element);
  return {BaseOf(tensor), problem.DimsOf(operand), stride, element};
}

Status CheckOperands(const Program& program, const std::vector<OperandViews>& tensors) {
  struct Owned {
    size_t node;
    Member member;
  };
  std::vector<Owned> all, results;  // of the caller's
  for (size_t i = 0; i < program.size(); ++i) {
    const Problem& problem = program[i];
    const Inner passed = program.PassedTo(i);
    OOC_TRY(CheckOperands(problem, tensors[i], passed)
                .With(Format("link %zu of a chain", program.LinkOf(i))));
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (!problem.Has(operand) || passed[o] || operand == Operand::kOld) continue;
      all.push_back({i, {problem, tensors[i], operand}});
      if (problem.Writes(operand)) results.push_back(all.back());
    }
  }
  for (const Owned& result : results) {
    for (const Owned& other : all) {
      if (other.node == result.node || !Overlap(other.member, result.member)) continue;
      return Error(
          Code::kInvalidProblem, "%s of link %zu overlaps %s of link %zu; pass another output",
          Name(result.member.operand, result.member.problem.direction), program.LinkOf(result.node),
          Name(other.member.operand, other.member.problem.direction), program.LinkOf(other.node));
    }
  }
  return {};
}

Status CheckOperands(const Problem& problem, const OperandViews& tensors, const Inner& inner) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (operand == Operand::kOld || inner[i] || !problem.Has(operand)) continue;
    const Dims dims = problem.DimsOf(operand);
    if (std::count(dims.begin(), dims.end(), 0) > 0) continue;
    if (tensors[i].in_file()) {
      OOC_TRY(CheckFile(problem, tensors, operand));
    } else if (tensors[i].data == nullptr) {
      return Error(Code::kInvalidProblem, "%s is missing: its data pointer is null",
                   Name(operand, problem.direction));
    } else {
      OOC_TRY(CheckAligned(problem, tensors, operand));
    }
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool written = problem.Writes(operand) && !inner[i];
    if (written) OOC_TRY(CheckOutput(problem, tensors, operand, inner));
  }
  return {};
}

Status LocateOperands(Device& device, const Problem& problem, OperandViews* tensors,
                      const Inner& inner) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    TensorView& tensor = (*tensors)[i];
    if (!problem.Has(operand) || inner[i] || tensor.in_file()) continue;
    if (tensor.data == nullptr) {
      tensor.location.tier = Tier::kPinned;
      continue;
    }
    const AddressRange range = AddressesOf(problem, *tensors, operand);
    if (range.bytes() <= 0) continue;
    OOC_ASSIGN(tensor.location, CallPins::Locate(device, range));
    if (tensor.location.tier == Tier::kPeer) {
      return Error(Code::kUnsupported,
                   "%s lies on GPU %d, and this context computes on %s: copy it there, or to host "
                   "memory, or take a context on its GPU",
                   Name(operand, problem.direction), tensor.location.device,
                   device.capabilities().name.c_str());
    }
  }
  return {};
}

Result<std::vector<OperandViews>> LocateOperands(Device& device, const Program& program,
                                                 const std::vector<OperandViews>& operands) {
  std::vector<OperandViews> tensors = operands;
  for (size_t i = 0; i < program.size(); ++i) {
    const Inner passed = program.PassedTo(i);
    OOC_TRY(LocateOperands(device, program[i], &tensors[i], passed));
    for (int o = 0; o < kOperands; ++o) {
      if (passed[o]) tensors[i][o].location.tier = Tier::kDevice;
    }
  }
  return tensors;
}

Status RunEmpty(Device& device, const Problem& problem, const OperandViews& tensors, Arena& arena) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (problem.Writes(operand)) OOC_TRY(WriteEmpty(device, problem, tensors, arena, operand));
  }
  return {};
}

}  // namespace oocdnn
