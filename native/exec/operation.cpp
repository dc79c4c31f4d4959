#include "exec/operation.hpp"

namespace oocdnn {
namespace {

constexpr Role U = Role::kUnused, R = Role::kRead, F = Role::kFinish, O = Role::kOutput;

// Columns: x, w, y, bias, scale, residual, old.
constexpr std::array<Operation, kDirections> kTable{{
    {Direction::kForward, {R, R, O, F, F, F, F}},
    {Direction::kBackwardData, {O, R, R, F, F, F, F}},
    {Direction::kBackwardFilter, {R, O, R, U, U, F, F}},
    {Direction::kBackwardBias, {U, U, R, O, U, F, F}},
}};

}  // namespace

const Operation& OperationOf(Direction direction) { return kTable[static_cast<size_t>(direction)]; }

}  // namespace oocdnn
