"""Tiles and schedules, proven without a device: a NumPy execution of the schedule gives exactly
the whole result, every output element leaves once, and what need not be fetched is not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from geometry import core
from geometry.cases import depths, make, orders, problems, runs, tapered, tilings
from geometry.core import SAVED, Direction, W, X, Y, Z
from geometry.simulation import Simulation, all_of, convolve, random_tensors, restores
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

thorough = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

CONVOLUTIONS = (Direction.FWD, Direction.BWD_DATA, Direction.BWD_FILTER)
GRADIENTS = (Direction.BWD_DATA, Direction.BWD_FILTER, Direction.BWD_BIAS)


def rolling_operand(problem) -> int:
    """The activation whose neighbouring tiles share halo rows."""
    return Y if problem.direction == Direction.BWD_DATA else X


@pytest.mark.parametrize("direction", list(Direction))
@thorough
@given(data=st.data())
def test_simulated_schedule_equals_the_whole(direction, data):
    problem, tiling, order, rings, seed = data.draw(runs((direction,)))
    core.validate(problem)
    tensors = random_tensors(problem, seed)
    run = Simulation(problem, tiling, order, rings, tensors)
    expected = all_of(problem, tensors)
    assert run.outputs.keys() == expected.keys()
    for operand, array in expected.items():
        assert (run.drains[operand] == 1).all()
        np.testing.assert_array_equal(run.outputs[operand], array)


@thorough
@given(st.data())
def test_tile_shape_is_a_convolution(data):
    """The out extents are those that the in extents give, and the pads are symmetric."""
    problem = data.draw(problems(epilogues=False))
    tiling = data.draw(tilings(problem))
    tile = core.tile_shape(problem, tiling, tiling.taper.length > 0 and data.draw(st.booleans()))
    if problem.direction == Direction.BWD_BIAS:
        return
    assert list(tile.pad_before) == list(tile.pad_after)
    for a in range(3):
        assert tile.out[a] == core.output_extent(
            tile.input[a], tile.pad_before[a], tile.pad_after[a], tile.filter[a], tile.stride[a],
            tile.dilation[a],
        )  # fmt: skip
        if core.counts(tiling)[4 + a] > 1:
            assert tiling.padding_as_data[a]
            assert tile.pad_before[a] == 0 or tiling.full_padding
        reach = (tile.filter[a] - 1) * tile.dilation[a] + 1
        if tiling.padding_as_data[a]:  # engines take no wider pads, nor shorter inputs
            assert tile.pad_before[a] < reach <= tile.input[a]


@pytest.mark.parametrize(("length", "rows", "pad"), [(8, 8, 4), (5, 5, 4), (3, 5, 3), (1, 5, 2)])
def test_tiles_of_backward_data_hold_no_row_that_another_has(length, rows, pad):
    """A filter of reach 5: the input of a tile's convolution is no shorter, and its pad is less."""
    problem = core.parse("conv2d:bwd_data x1x1x40x40 w1x1x3x3 pad2 dil2")
    tiling = core.make_tiling(problem, [1, 1, 1, 1, 1, length, 40])
    tile = core.tile_shape(problem, tiling)
    assert (tile.input[1], tile.out[1], tile.pad_before[1]) == (rows, length + 4, pad)
    held = core.make_tiling(problem, [1, 1, 1, 1, 1, length, 40], padding_as_data=True)
    tile = core.tile_shape(problem, held)
    assert (tile.input[1], tile.out[1], tile.pad_before[1]) == (length + 8, length + 4, 0)


@thorough
@given(st.data())
def test_order_is_legal_where_output_tiles_are_finished_in_one_go(data):
    problem = data.draw(problems(epilogues=False))
    tiling = data.draw(tilings(problem))
    order = data.draw(st.permutations(range(7)))
    spans = [range(core.counts(tiling)[axis]) for axis in order]
    kept = [i for i, axis in enumerate(order) if not core.is_reduction(problem, axis)]
    visits = [tuple(index[i] for i in kept) for index in itertools.product(*spans)]
    runs_of_one_tile = sum(1 for _ in itertools.groupby(visits))
    assert core.is_legal(problem, tiling, order) == (runs_of_one_tile == len(set(visits)))
    assert core.is_legal(problem, tiling, core.default_order(problem))


@thorough
@given(st.data())
def test_resident_filter_is_fetched_once(data):
    problem, tiling, order, rings, seed = data.draw(
        runs((Direction.FWD, Direction.BWD_DATA), epilogues=False)
    )
    boxes = np.prod([c for a, c in enumerate(core.counts(tiling)) if core.moves(problem, W, a)])
    rings[W] = int(boxes)
    run = Simulation(problem, tiling, order, rings, random_tensors(problem, seed))
    assert run.enters[W] == boxes
    assert (run.fetches[W] == 1).all()


@thorough
@given(st.data())
def test_halo_rows_are_fetched_once(data):
    """With one spatial axis cut, innermost of the axes that move the rolling operand, and two
    slots, no element of that operand crosses twice."""
    problem = data.draw(problems(CONVOLUTIONS, epilogues=False))
    axis = data.draw(st.sampled_from((4, 5, 6)))
    length = list(core.make_tiling(problem, [2**40] * 7).extent)
    length[axis] = data.draw(st.integers(1, length[axis]))
    other = data.draw(st.sampled_from((0, 1)))
    length[other] = data.draw(st.integers(1, length[other]))
    tiling = core.make_tiling(problem, length)
    if other == 0:  # no row is rolled between tiles of different shapes
        tiling = data.draw(tapered(problem, tiling, other))
    order = [other, *(a for a in range(7) if a not in (other, axis)), axis]
    if not core.is_legal(problem, tiling, order):
        return
    run = Simulation(problem, tiling, order, [2] * len(core.OPERANDS), random_tensors(problem, 1))
    assert run.fetches[rolling_operand(problem)].max() <= 1


@thorough
@given(st.data())
def test_what_dy_is_restored_from_is_fetched_once(data):
    """The same of dz and its bits; dy itself is never fetched."""
    problem = data.draw(problems(GRADIENTS))
    assume(restores(problem))
    axis = data.draw(st.sampled_from((4, 5, 6)))
    length = list(core.make_tiling(problem, [2**40] * 7).extent)
    length[axis] = data.draw(st.integers(1, length[axis]))
    tiling = core.make_tiling(problem, length)
    order = [*(a for a in range(7) if a != axis), axis]
    if not core.is_legal(problem, tiling, order):
        return
    run = Simulation(problem, tiling, order, [2] * len(core.OPERANDS), random_tensors(problem, 1))
    assert Y not in run.fetches
    for operand in {Z, SAVED} & run.fetches.keys():
        assert run.fetches[operand].max() <= 1


def assert_nan_stays_local(problem, tiling, order, rings, tensors, place) -> None:
    """A NaN at `place` of the rolling operand spoils the same outputs in tiles as in one piece."""
    spoiled = {i: tensor.copy() for i, tensor in tensors.items()}
    spoiled[rolling_operand(problem)].flat[place] = np.nan
    expected = convolve(problem, problem.shape, spoiled)
    run = Simulation(problem, tiling, order, rings, spoiled)
    np.testing.assert_array_equal(np.isnan(run.output), np.isnan(expected))


@thorough
@given(st.data())
def test_nan_meets_the_outputs_that_it_meets_in_one_piece(data):
    problem, tiling, order, rings, seed = data.draw(runs(CONVOLUTIONS, epilogues=False))
    tensors = random_tensors(problem, seed)
    place = data.draw(st.integers(0, tensors[rolling_operand(problem)].size - 1))
    assert_nan_stays_local(problem, tiling, order, rings, tensors, place)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("short", [0, 1, 2, 3])
def test_last_tile_of_backward_filter_is_moved_back(stride, pad, short):
    """Past the end it would bring x rows together with taps that they do not meet in one piece, and
    a NaN times a zero row of dy is a NaN."""
    problem = make(
        Direction.BWD_FILTER, n=2, input=(1, 1, 17), filter=(1, 1, 3), stride=(1, 1, stride),
        pad_before=(0, 0, pad), pad_after=(0, 0, pad),
    )  # fmt: skip
    tensors = random_tensors(problem, 5)
    for length in (2, 3, 4, 5):
        tiling = core.make_tiling(problem, [2, 1, 1, 1, 1, 1, length])
        core.taper(problem, tiling, 6, short)
        for place in range(tensors[X].size):
            assert_nan_stays_local(
                problem, tiling, range(7), [2] * len(core.OPERANDS), tensors, place
            )


@thorough
@given(st.data())
def test_tiling_has_no_more_tiles_than_lengths_ask_for(data):
    problem = data.draw(problems(epilogues=False))
    tiling = data.draw(tilings(problem))
    for axis in range(7):
        extent, length = tiling.extent[axis], tiling.length[axis]
        assert 1 <= length <= extent
        if tiling.taper.length == 0 or tiling.taper.axis != axis:
            assert core.counts(tiling)[axis] == -(-extent // length)
        cut_data_axis = problem.direction == Direction.BWD_DATA and axis >= 4 and length < extent
        assert not cut_data_axis or length % problem.shape.stride[axis - 4] == 0


@thorough
@given(st.data())
def test_ends_of_a_tapered_axis_are_short(data):
    """The tiles follow each other without gap or overlap; the first is short, the last too or the
    usual ones reach the end, and all between have the usual length."""
    problem = data.draw(problems(epilogues=False))
    tiling = data.draw(tilings(problem))
    axis, short = tiling.taper.axis, tiling.taper.length
    if short == 0:
        return
    usual, extent = tiling.length[axis], tiling.extent[axis]
    assert 0 < short < usual < extent
    if problem.direction == Direction.BWD_DATA and axis >= 4:
        assert short % problem.shape.stride[axis - 4] == 0
    left, number = extent - short, 1
    while left > 0:
        left -= short if left <= short else usual
        number += 1
    assert core.counts(tiling)[axis] == number
    usual_tile, short_tile = (core.tile_shape(problem, tiling, s) for s in (False, True))
    for name, _ in core.Shape._fields_:
        pairs = zip(
            *(np.ravel(getattr(tile, name)) for tile in (short_tile, usual_tile)), strict=True
        )
        assert all(a <= b for a, b in pairs)


def test_tapered_rows_roll_between_usual_tiles_alone():
    """Short and usual tiles may lie differently in their slots."""
    problem = make(
        Direction.FWD, input=(1, 1, 19), filter=(1, 1, 3), pad_before=(0, 0, 1),
        pad_after=(0, 0, 1),
    )  # fmt: skip
    tiling = core.make_tiling(problem, [1, 1, 1, 1, 1, 1, 5])
    core.taper(problem, tiling, 6, 2)
    steps = core.schedule(problem, tiling, range(7), [2] * len(core.OPERANDS))
    assert [step.operand[X].box.extent[5] for step in steps] == [4, 7, 7, 7, 4]
    assert [step.operand[X].kept for step in steps] == [0, 0, 2, 2, 0]


@thorough
@given(st.data())
def test_slots_are_within_their_ring_and_steps_are_numbered(data):
    problem = data.draw(problems())
    tiling, order = data.draw(tilings(problem)), data.draw(orders(problem))
    rings = data.draw(depths)
    for number, step in enumerate(core.schedule(problem, tiling, order, rings)):
        assert step.number == number
        for i in range(len(core.OPERANDS)):
            used = core.uses(problem, i)
            assert 0 <= step.operand[i].slot < rings[i] if used else step.operand[i].slot == -1
