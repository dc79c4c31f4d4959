"""Gradients that come along with dx: one pass over dz and its bits yields dx, dw and db. Each pair
of elements of x and dy that meet does so in one tile, and each of dy counts once in db."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from geometry import core
from geometry.cases import joint_problems, runs_of, tilings
from geometry.core import DB, DW, INPUT, SAVED, W, X, Y, Z
from geometry.simulation import Simulation, all_of, random_tensors, ranges
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

thorough = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@thorough
@given(st.data())
def test_all_gradients_of_one_pass_are_those_of_the_whole(data):
    problem, tiling, order, rings, seed = data.draw(runs_of(joint_problems()))
    core.validate(problem)
    assert core.is_legal(problem, tiling, order)
    tensors = random_tensors(problem, seed)
    run = Simulation(problem, tiling, order, rings, tensors)
    expected = all_of(problem, tensors)
    assert run.outputs.keys() == expected.keys()
    for operand, array in expected.items():
        assert (run.drains[operand] == 1).all()
        np.testing.assert_array_equal(run.outputs[operand], array)
    if INPUT in tensors:  # which no tile shares with another
        assert (run.fetches[INPUT] == 1).all()


@thorough
@given(st.data())
def test_own_rows_divide_dy_among_the_tiles(data):
    problem = data.draw(joint_problems())
    assume(problem.also.db)
    tiling = data.draw(tilings(problem))
    counted = np.zeros(core.dims_of(problem, Y), int)
    for index in itertools.product(*map(range, core.counts(tiling))):
        own = core.own_rows(problem, tiling, index)
        box = core.region(problem, tiling, Y, index)
        assert list(own.origin) == list(box.origin)
        assert list(own.extent) == list(box.extent)
        for d in range(6):
            if own.valid_begin[d] < own.valid_end[d]:
                assert box.valid_begin[d] <= own.valid_begin[d]
                assert own.valid_end[d] <= box.valid_end[d]
        part, _ = ranges(own)
        counted[part] += 1
    assert (counted == 1).all()


@thorough
@given(st.data())
def test_one_cut_axis_costs_no_byte_twice(data):
    """With rows rolled over, dz and its bits cross once for all three gradients."""
    problem = data.draw(joint_problems())
    axis = data.draw(st.sampled_from((0, 4, 5, 6)))
    length = list(core.make_tiling(problem, [2**40] * 7).extent)
    length[axis] = data.draw(st.integers(1, length[axis]))
    tiling = core.make_tiling(problem, length)
    order = [*(a for a in range(7) if a != axis), axis]
    rings = [2] * len(core.OPERANDS)
    run = Simulation(problem, tiling, order, rings, random_tensors(problem, 1))
    assert Y not in run.fetches
    for operand in {Z, SAVED, INPUT, W} & run.fetches.keys():
        assert run.fetches[operand].max() <= 1
    assert all(run.enters[operand] <= 1 for operand in (DW, DB))


def test_channels_are_never_cut():
    problem = core.parse("conv2d:bwd_data x4x8x9x9 w6x8x3x3 pad1 +dw")
    assert list(core.make_tiling(problem, [1] * 7).length) == [1, 1, 6, 8, 1, 1, 1]
    assert core.make_tiling(core.parse("conv2d:bwd_data x4x8x9x9 w6x8x3x3"), [1] * 7).length[2] == 1


def test_sums_of_a_group_are_finished_before_the_next_begin():
    problem = core.parse("conv2d:bwd_data x4x8x9x9 w6x4x3x3 pad1 grp2 +dw")
    tiling = core.make_tiling(problem, [1, 1, 9, 9, 1, 9, 9])
    assert core.default_order(problem)[0] == 1
    assert core.is_legal(problem, tiling, core.default_order(problem))
    assert not core.is_legal(problem, tiling, range(7))
    assert core.is_legal(
        core.parse("conv2d:bwd_data x4x8x9x9 w6x4x3x3 pad1 grp2"), tiling, range(7)
    )


def test_a_row_of_x_is_where_its_row_of_dx_is():
    problem = core.parse("conv2d:bwd_data x1x1x40x40 w1x1x3x3 pad1 +dw +maxpool2")
    for as_data in (False, True):
        tiling = core.make_tiling(problem, [1, 1, 1, 1, 1, 8, 40], as_data)
        for number in range(5):
            x, dx = (
                core.region(problem, tiling, i, [0, 0, 0, 0, 0, number, 0]) for i in (INPUT, X)
            )
            assert bytes(x) == bytes(dx)
            assert (x.valid_begin[4], x.valid_end[4]) == (8 * number, 8 * number + 8)


BAD = [
    ("conv2d:bwd_filter x1x1x8x8 w1x1x3x3 +dw", "with bwd_data only, .* not with bwd_filter"),
    ("conv2d:fwd x1x1x8x8 w1x1x3x3 +db", "with that or bwd_filter, not with fwd"),
    ("conv2d:bwd_bias y1x1x8x8 +db", "not with bwd_bias"),
    ("conv2d:bwd_data x1x1x8x8 w1x1x3x3 alpha2 +dw", "alpha 2"),
    ("conv2d:bwd_data x1x1x8x8 w1x1x3x3 +bias +db", "an epilogue"),
    ("conv2d:bwd_data x1x1x8x8 w1x1x3x3 pad0x3 +db", "on axis W: padding 3 is not below"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_what_does_not_go_together_is_refused(text, words):
    with pytest.raises(core.Refused, match=words):
        core.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 pad1 +maxpool2 +clipped +dw +db",
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 pad3 +dw",
        "conv2d:bwd_filter x2x3x8x8 w4x3x3x3 pad3 +maxpool2 +db",
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 nhwc dws:nhwc +dw +db",
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 inputs:nhwc dbs:2 +dw +db",
    ],
)
def test_text_is_printed_back(text):
    assert core.text_of(core.parse(text)) == text


def test_placement_names_what_comes_along():
    places = core.parse_placement("input@pin also_dw@dev also_db@page x@file")
    assert [places[i] for i in (INPUT, DW, DB, X)] == [2, 3, 1, 4]
    assert core.placement_text(places) == "x@file input@pin also_dw@dev also_db@page"
