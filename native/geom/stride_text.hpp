// The strides of a problem string: what a layout word means for each operand, and the words for
// operands that lie otherwise.
//
//   nchw, nhwc     (ncw, nwc, ncdhw, ndhwc) one word for x, y and what has their shape; the filter,
//                  bias and scale are dense whatever it says
//   ws:nhwc        one operand's own layout: ws xs ys zs bs ss rs (b, scale, residual), and of
//                  those of Also inputs dws dbs
//   xs:48x16x4x1   element strides, one per axis of the array (b and scale have one axis)
//   xs:96x0x48x..  six of them, in the order of Problem, where groups and channels do not merge
//
// A stride along an extent of 1 addresses nothing: it is neither compared nor kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "geom/problem.hpp"

namespace oocdnn {

// The operands with a stride word, and its prefix ("xs:"); kOld lies where the output lies, and
// what is saved is always dense.
struct StrideWord {
  Operand operand;
  const char* prefix;
};
constexpr StrideWord kStrideWords[] = {
    {Operand::kX, "xs:"},    {Operand::kW, "ws:"},         {Operand::kY, "ys:"},
    {Operand::kBias, "bs:"}, {Operand::kScale, "ss:"},     {Operand::kResidual, "rs:"},
    {Operand::kZ, "zs:"},    {Operand::kInput, "inputs:"}, {Operand::kDw, "dws:"},
    {Operand::kDb, "dbs:"},
};

// The name of a memory order for `rank` spatial axes, e.g. "nhwc" for 2.
std::string_view LayoutName(int rank, bool channels_last);

// The layout word and the stride words of `problem`, fewest first choice; empty for dense arrays.
std::vector<std::string> StrideTexts(const Problem& problem, int rank);

// Sets the strides of every used operand: of the layout, or of its own text where that is not
// empty (what follows the prefix). The shape of `problem` must be complete.
Status ReadStrides(Problem* problem, bool channels_last,
                   const std::array<std::string_view, kOperands>& texts);

}  // namespace oocdnn
