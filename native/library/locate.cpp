#include "library/locate.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "library/call_pins.hpp"

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

}  // namespace oocdnn
