// Loop orders worth trying, and the cuts that reproducible results allow.
#pragma once

#include <array>
#include <vector>

#include "geom/schedule.hpp"

namespace oocdnn {

// The legal orders that differ in traffic for a tiling with these piece counts, outermost first.
// Groups are outermost, as they move everything; then either output channels outside the pixels
// (a filter tile stays, the input is fetched again for each) or inside (the other way round); each
// cut spatial axis in turn is the innermost, which is the one that rolls its halo.
std::vector<LoopOrder> UsualOrders(const Problem& problem, const AxisArray& counts,
                                   bool reproducible);

// Every legal order of the axes that are cut, outermost first, with those that are not, which make
// no difference, behind them. `reproducible`: sums over pixels in the order N, D, H, W only.
std::vector<LoopOrder> AllOrders(const Problem& problem, const AxisArray& counts,
                                 bool reproducible);

// True if sums over these cuts are added up in the order, and in the blocks, in which one uncut
// tile adds them: N, D, H, W of the filter's and the bias's gradients. An axis may then be cut only
// where every axis before it advances by single rows. Other directions sum over one axis, in order
// whatever the cut. Cuts of an axis lie at multiples of SumUnit.
bool KeepsSummationOrder(const Problem& problem, const AxisArray& lengths, const AxisArray& counts);
bool KeepsSummationOrder(const Problem& problem, const Tiling& tiling);

// The steps on the axis between which sums can be cut with the same bits, see geom/sum_blocks.hpp;
// the whole extent where there are none. 1 on axes that are not summed over.
int64_t SumUnit(const Problem& problem, Axis axis);

// The channel axis over which forward and backward data sum; cutting it makes partial sums, so it
// is cut for good reason only. kN (never such an axis) for the other directions.
Axis SummedChannels(const Problem& problem);

}  // namespace oocdnn
