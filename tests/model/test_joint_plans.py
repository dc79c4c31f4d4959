"""Plans of gradients that come along with dx: legal ones, in which every byte crosses once."""

import math

import pytest
from geometry import core
from geometry.core import DB, DW, INPUT, SAVED, W, X, Z
from model import planner

CHAIN = "x64x64x112x112 w64x64x3x3 pad1 {}+maxpool2 +clipped"
MIB = 1 << 20


def joint(words: str = "") -> core.Problem:
    return core.parse("conv2d:bwd_data " + CHAIN.format(words) + " +dw +db")


def bytes_of(problem, operands) -> int:
    sizes = {operand: 1 if operand == SAVED else 4 for operand in operands}
    return sum(size * math.prod(core.dims_of(problem, i)) for i, size in sizes.items())


@pytest.mark.parametrize("budget", [32 * MIB, 128 * MIB, 1024 * MIB])
def test_every_byte_crosses_once(budget):
    problem = joint()
    best = planner.search(problem, budget, planner.H200).ranked[0]
    assert core.is_legal(problem, best.tiling, best.order)
    assert best.counts()[2:4] == [1, 1]
    assert best.cost["bytes_in"] == bytes_of(problem, (INPUT, W, Z, SAVED))
    assert best.cost["bytes_out"] == bytes_of(problem, (X, DW, DB))


@pytest.mark.parametrize("exhaustive", [False, True])
def test_all_plans_are_legal_where_groups_are_cut(exhaustive):
    problem = core.parse("conv2d:bwd_data x4x16x6x6 w16x4x3x3 pad1 grp4 +clipped +dw +db")
    for plan in planner.search(problem, 24 << 10, planner.H200, exhaustive=exhaustive).ranked:
        assert core.is_legal(problem, plan.tiling, plan.order)
        assert plan.facts["estimate"] <= 24 << 10


def test_one_pass_is_faster_than_a_call_for_each_gradient():
    def seconds(text):
        return planner.search(core.parse(text), 256 * MIB, planner.H200).ranked[0].seconds

    shapes = CHAIN.format("")
    alone = [f"conv2d:bwd_data {shapes}", f"conv2d:bwd_filter {shapes}"]
    alone.append("conv2d:bwd_bias y64x64x112x112 +maxpool2 +clipped")
    assert seconds(f"conv2d:bwd_data {shapes} +dw +db") < 0.9 * sum(map(seconds, alone))


def test_what_comes_along_is_computed_too():
    """By hand: dw takes as many operations as dx at the same rate, and db a pass over dy."""
    problem, plain = joint(), core.parse("conv2d:bwd_data " + CHAIN.format(""))
    prices = []
    for one in (problem, plain):
        tiling = core.make_tiling(one, [4, 1, 64, 64, 1, 112, 112])
        run = (one, tiling, core.default_order(one), [2] * len(core.OPERANDS))
        prices.append(planner.price(*run, planner.Profile(), engines=planner.DIRECT))
    with_all, dx_alone = (price["compute_seconds"] for price in prices)
    assert 1.9 < with_all / dx_alone < 2.5


def test_bits_that_depend_on_the_tiles_are_refused():
    with pytest.raises(planner.Refused, match="ask for each gradient apart"):
        planner.search(joint(), 1024 * MIB, planner.H200, reproducible=True)
