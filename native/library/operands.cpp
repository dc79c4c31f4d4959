#include "library/operands.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "library/locate.hpp"

namespace oocdnn {
namespace {

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

}  // namespace

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

}  // namespace oocdnn
