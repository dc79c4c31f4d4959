#include "geom/axes.hpp"

namespace oocdnn {
namespace {

// The axes that move the dimensions of an operand's boxes.
class AxisMap {
 public:
  constexpr explicit AxisMap(const std::array<int, 6>& axes) : axes_(axes) {
    for (const int axis : axes) set_ |= BitOf(axis);
  }
  [[nodiscard]] constexpr const std::array<int, 6>& axes() const { return axes_; }
  [[nodiscard]] constexpr AxisSet set() const { return set_; }

 private:
  std::array<int, 6> axes_;
  AxisSet set_ = 0;
};

constexpr AxisMap kActivationIn({0, 1, 3, 4, 5, 6});   // N G C D H W
constexpr AxisMap kActivationOut({0, 1, 2, 4, 5, 6});  // N G K O P Q
constexpr AxisMap kFilter({1, 2, 3, kNoAxis, kNoAxis, kNoAxis});
constexpr AxisMap kPerK({kNoAxis, 1, 2, kNoAxis, kNoAxis, kNoAxis});
constexpr AxisMap kWhole({kNoAxis, kNoAxis, kNoAxis, kNoAxis, kNoAxis, kNoAxis});
constexpr AxisMap kPerC({kNoAxis, 1, 3, kNoAxis, kNoAxis, kNoAxis});

const AxisMap& MapOf(Direction direction, Operand operand) {
  switch (operand) {
    case Operand::kX:
    case Operand::kInput: return kActivationIn;
    case Operand::kW:
    case Operand::kDw: return kFilter;
    case Operand::kY:
    case Operand::kZ:
    case Operand::kSaved: break;
    case Operand::kBias:
    case Operand::kScale: return direction == Direction::kBackwardData ? kPerC : kPerK;
    case Operand::kDb: return kPerK;
    case Operand::kPrologue:
    case Operand::kSums: return kWhole;
    case Operand::kResidual:
    case Operand::kOld: return MapOf(direction, OutputOf(direction));
  }
  return kActivationOut;
}

}  // namespace

const char* Name(Axis axis) {
  switch (axis) {
    case Axis::kN: return "N";
    case Axis::kG: return "groups";
    case Axis::kK: return "K";
    case Axis::kC: return "C";
    case Axis::kD: return "D";
    case Axis::kH: return "H";
    case Axis::kW: return "W";
  }
  return "?";
}

const std::array<int, 6>& AxesOf(Direction direction, Operand operand) {
  return MapOf(direction, operand).axes();
}

AxisSet MovedBy(const Problem& problem, Operand operand) {
  return MapOf(problem.direction, operand).set();
}

bool Moves(const Problem& problem, Operand operand, Axis axis) {
  return (MovedBy(problem, operand) & BitOf(Index(axis))) != 0;
}

bool IsReduction(const Problem& problem, Axis axis) {
  return !Moves(problem, problem.output(), axis);
}

}  // namespace oocdnn
