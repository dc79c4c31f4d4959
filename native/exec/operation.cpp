#include "exec/operation.hpp"

namespace oocdnn {
namespace {

constexpr Role U = Role::kUnused, R = Role::kRead, F = Role::kFinish, S = Role::kSum,
               M = Role::kPooled, O = Role::kSource;

// Columns: x, w, y, bias, scale, residual, old, z, saved, input, dw, db, prologue, sums.
constexpr std::array<Operation, kDirections> kTable{{
    {Direction::kForward, {R, R, S, F, F, F, F, M, M, U, U, U, O, M}},
    {Direction::kBackwardData, {S, R, R, F, F, F, F, O, O, U, U, U, O, M}},
    {Direction::kBackwardFilter, {R, S, R, U, U, F, F, O, O}},
    {Direction::kBackwardBias, {U, U, R, S, U, F, F, O, O}},
}};

}  // namespace

const Operation& OperationOf(Direction direction) { return kTable[static_cast<size_t>(direction)]; }

}  // namespace oocdnn
