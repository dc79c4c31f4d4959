"""The geometric defects of ooc_cuDNN, each as a case that it got wrong.

Its others (races, leaks, serialised copies, models) are guarded where the pipeline is tested.
"""

from __future__ import annotations

import numpy as np
import pytest
from geometry import core
from geometry.cases import make
from geometry.core import Direction, W, X
from geometry.simulation import Simulation, random_tensors, whole

EVERYTHING = 2**40
ALL_WHOLE = [EVERYTHING] * 7


def cut(problem, **length):
    lengths = list(ALL_WHOLE)
    for axis, value in length.items():
        lengths[core.AXES.index(axis)] = value
    return core.make_tiling(problem, lengths)


def run(problem, tiling, order=None, depths=2):
    """The simulation, checked against the whole problem."""
    tensors = random_tensors(problem, 11)
    order = order or core.default_order(problem)
    simulation = Simulation(problem, tiling, order, [depths] * len(core.OPERANDS), tensors)
    np.testing.assert_array_equal(simulation.output, whole(problem, tensors))
    assert all((drains == 1).all() for drains in simulation.drains.values())
    return simulation


@pytest.mark.parametrize("direction", [Direction.FWD, Direction.BWD_DATA, Direction.BWD_FILTER])
def test_top_halo_of_the_first_tile_with_padding(direction):
    """The first tile begins above row 0: there an unsigned offset wrapped to 1.8e19 rows."""
    problem = make(
        direction, n=2, c=3, k=4, input=(1, 12, 6), filter=(1, 3, 3), pad_before=(0, 1, 1),
        pad_after=(0, 1, 1),
    )  # fmt: skip
    tiling = cut(problem, H=4)
    halo = core.Y if direction == Direction.BWD_DATA else X
    box = core.region(problem, tiling, halo, [0] * 7)
    assert (box.origin[4], box.valid_begin[4]) == (-1, 0)
    assert box.valid_end[4] == box.origin[4] + box.extent[4]
    run(problem, tiling)


@pytest.mark.parametrize("pieces", [2, 4, 8])
@pytest.mark.parametrize("window", [(1, 1, 1), (2, 1, 1), (1, 2, 2)], ids=str)
def test_backward_data_computes_every_row_of_every_piece(pieces, window):
    """With 2, 4 and 8 pieces, 3, 4 and 8 of 224 dx rows were computed, silently."""
    stride, dilation, pad = window
    problem = make(
        Direction.BWD_DATA, c=2, k=2, input=(1, 224, 3), filter=(1, 3, 1),
        stride=(1, stride, 1), dilation=(1, dilation, 1), pad_before=(0, pad, 0),
        pad_after=(0, pad, 0),
    )  # fmt: skip
    tiling = cut(problem, H=224 // pieces)
    assert core.counts(tiling)[5] == pieces
    boxes = [core.region(problem, tiling, X, [0] * 5 + [i, 0]) for i in range(pieces)]
    assert sum(box.valid_end[4] - box.valid_begin[4] for box in boxes) == 224
    run(problem, tiling)


def test_output_channel_blocks_use_their_own_filters():
    """Every block of output channels was computed with the first block's filters."""
    problem = make(Direction.FWD, c=2, k=6, input=(1, 5, 5), filter=(1, 3, 3))
    tiling = cut(problem, K=2, C=1)
    index = [0] * 7
    for block in range(3):
        index[core.AXES.index("K")] = block
        assert core.region(problem, tiling, W, index).origin[1] == 2 * block
    run(problem, tiling)


@pytest.mark.parametrize("outer", ["H", "K"])
def test_operands_are_not_sent_again_for_each_block(outer):
    """One loop order sent x again for each block of K, w for each tile, and halo rows always. Here
    each crosses once: rows roll from slot to slot, and what a loop does not move stays."""
    problem = make(Direction.FWD, c=2, k=6, input=(1, 14, 4), filter=(1, 3, 3), n=2)
    tiling = cut(problem, H=3, K=2)
    inner = "K" if outer == "H" else "H"
    order = [core.AXES.index(letter) for letter in "NGDW" + outer + inner + "C"]
    simulation = run(problem, tiling, order, core.counts(tiling)[core.AXES.index(inner)])
    assert simulation.fetches[X].max() == 1
    assert simulation.fetches[W].max() == 1
    seams = core.counts(tiling)[core.AXES.index("H")] - 1
    assert simulation.rolled_rows == seams * (problem.shape.filter[1] - 1)


def test_rows_roll_forward_only():
    """From the last rows for one block of K the next block begins at the top: nothing to keep."""
    problem = make(Direction.FWD, c=2, k=6, input=(1, 14, 4), filter=(1, 3, 3))
    tiling = cut(problem, H=3, K=2)
    order = [core.AXES.index(letter) for letter in "NGDWKHC"]
    simulation = run(problem, tiling, order, depths=2)
    blocks, seams = core.counts(tiling)[2], core.counts(tiling)[5] - 1
    assert simulation.rolled_rows == blocks * seams * (problem.shape.filter[1] - 1)


@pytest.mark.parametrize("direction", list(Direction)[:3])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strides_groups_and_three_axes(direction, groups, stride):
    """Groups were refused, 3-D and strided h-tiles of backward passes did not exist."""
    problem = make(
        direction, n=2, g=groups, c=2, k=3, input=(9, 10, 11), filter=(2, 3, 2),
        stride=(stride, stride, 1), pad_before=(0, 2, 1), pad_after=(1, 0, 1), dilation=(1, 1, 2),
    )  # fmt: skip
    run(problem, cut(problem, N=1, G=2, K=2, C=1, H=3, D=2))


def test_tensors_beyond_32_bits():
    """Offsets of a tensor of 2**41 elements, where 32 bits and byte counts in them wrap."""
    problem = make(
        Direction.FWD, c=2048, k=2048, input=(1, 2**15, 2**15), filter=(1, 3, 3),
        pad_before=(0, 1, 1), pad_after=(0, 1, 1),
    )  # fmt: skip
    core.validate(problem)
    tiling = cut(problem, H=1000)
    last = core.counts(tiling)[5] - 1
    box = core.region(problem, tiling, X, [0] * 5 + [last, 0])
    assert (last, box.origin[4], box.extent[4], box.valid_end[4]) == (32, 31999, 1002, 2**15)
    assert problem.stride[X][2] * box.origin[2] + problem.stride[X][4] * box.origin[4] < 2**41
