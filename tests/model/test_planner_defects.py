"""One test for each defect of the planner of ooc_cuDNN, numbered as in its list of defects."""

from __future__ import annotations

import pytest
from geometry import core
from model import planner
from model.planner import DIRECT, H200, ONEDNN, Profile

# The machine of its paper.
P100 = Profile(
    fetch_bytes_per_second=12e9,
    drain_bytes_per_second=12e9,
    both_bytes_per_second=24e9,
    move_bytes_per_second=500e9,
    flops_fallback=9e12,
)
LAYER = "conv2d:fwd x8x64x64x64 w64x64x3x3 pad1"
FUSED = f"{LAYER} +bias +relu"


def tiles_of_images(text: str, profile: Profile, order=(0, 1, 2, 4, 5, 6, 3), depth: int = 2):
    """The price of one image per tile."""
    problem = core.parse(text)
    tiling = core.make_tiling(problem, [1] + [2**40] * 6)
    return planner.price(problem, tiling, order, [depth] * len(core.OPERANDS), profile)


def test_9_the_time_of_the_output_counts_in_fused_calls_too():
    """A stray semicolon left only the copy of the bias of all that follows the convolution."""
    slow = Profile(drain_bytes_per_second=1e6)
    for text in (LAYER, FUSED, f"{FUSED} beta1 +scale +residual1"):
        cost = tiles_of_images(text, slow)
        assert cost["bytes_out"] == 4 * 8 * 64 * 64 * 64
        assert cost["drain_seconds"] >= cost["bytes_out"] / 1e6
        assert cost["seconds"] >= cost["drain_seconds"]


def test_9_the_finishing_pass_counts():
    plain, fused = tiles_of_images(LAYER, Profile()), tiles_of_images(FUSED, Profile())
    assert fused["compute_seconds"] > plain["compute_seconds"]
    assert fused["bytes_in"] == plain["bytes_in"] + 4 * 64


def test_10_every_constant_is_set():
    """Profiles of some operations were fitted with a size that had never been assigned."""
    text = planner.default_profile()
    lines = text.splitlines()[1:-1]
    for line in lines:
        with pytest.raises(planner.Refused):
            planner.reprint(text.replace(f"{line}\n", ""))
    numbers = [line.split(" = ")[1].split()[0] for line in lines[6:]]
    assert len(numbers) >= 8
    assert all(0 < float(number) < 1e15 for number in numbers)
    prices = [tiles_of_images(text, Profile()) for text in (LAYER, FUSED) for _ in range(3)]
    assert prices[0] == prices[1] == prices[2]
    assert prices[3] == prices[4] == prices[5]


@pytest.mark.parametrize(
    "text", [LAYER, FUSED, f"{LAYER} beta1 +residual1", LAYER.replace("fwd", "bwd_filter")]
)
def test_11_memory_is_what_is_allocated(text):
    """Three buffers were allocated against a limit meant for one; or one, against a third."""
    problem = core.parse(text)
    tiling = core.make_tiling(problem, [1] + [2**40] * 6)
    used = [operand for operand in range(7) if core.uses(problem, operand)]
    single = planner.estimate(problem, tiling, [1] * len(core.OPERANDS), ONEDNN)
    more = [
        planner.estimate(problem, tiling, [3 if i == operand else 1 for i in range(7)], ONEDNN)
        for operand in used
    ]
    triple = planner.estimate(problem, tiling, [3] * len(core.OPERANDS), ONEDNN)
    assert all(bytes_ > single for bytes_ in more)
    assert triple == 3 * single == single + sum(bytes_ - single for bytes_ in more)


def test_11_a_single_buffer_may_use_the_whole_budget():
    problem = core.parse("conv2d:bwd_bias y1x1x1024x1024")
    budget = 4 * 1024 * 1024 - 1024  # a little less than dy
    best = planner.search(problem, budget, Profile(shared_engines=True), DIRECT, best=100)
    assert max(one.cost["device_bytes"] for one in best.ranked) > budget / 3


@pytest.mark.parametrize("profile", [H200, P100])
def test_a_coordinate_that_cannot_fit_is_not_frozen_at_its_extreme(profile):
    """w takes 2.4 GB of a budget of 1.6: the greedy search took 23 to 157 times the optimum."""
    problem = core.parse("conv2d:fwd x1x8192x64x64 w8192x8192x3x3 pad1")
    for engine in (ONEDNN, DIRECT):
        best = planner.search(problem, 1.6e9, profile, engine).ranked[0]
        assert best.seconds <= 1.1 * planner.floor_of(problem, profile)


def test_a_greedy_search_would_lose_here_too():
    """2048 to 2048 channels of 1024 x 1024 in 1.6 GB: greedy coordinates cost 38 %."""
    problem = core.parse("conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1")
    best = planner.search(problem, 1.6e9, H200).ranked[0]
    assert best.seconds <= 1.06 * planner.floor_of(problem, H200)


def test_15_a_filter_that_is_sent_again_is_charged_again():
    """The loop order was fixed, and what it sent again was in no cost."""
    problem = core.parse(LAYER)
    x, w = 4 * 8 * 64 * 64 * 64, 4 * 64 * 64 * 9
    halves = core.make_tiling(problem, [1, 1, 32, *[2**40] * 4])
    images_outside, filters_outside = (0, 1, 2, 3, 4, 5, 6), (2, 0, 1, 3, 4, 5, 6)

    def bytes_in(tiling, order, depth: int) -> int:
        return planner.price(problem, tiling, order, [depth] * len(core.OPERANDS), Profile())[
            "bytes_in"
        ]

    assert bytes_in(halves, images_outside, 1) == x + 8 * w
    assert bytes_in(halves, filters_outside, 1) == 2 * x + w
    assert bytes_in(halves, images_outside, 2) == x + w, "two slots hold both halves"
    assert tiles_of_images(LAYER, Profile())["bytes_in"] == x + w, "w stays"


def test_a_floor_counts_no_rows_that_lie_between_windows():
    """Every other row of x is of no use: with all of them in its floor, the engine that is best
    was thought to be out of the race before it was looked at."""
    problem = core.parse("conv2d:fwd x256x256x56x56 w512x256x1x1 str2")
    best = planner.search(problem, 240 << 20, H200, ONEDNN).ranked[0]
    assert best.counts()[5] == 28  # each row in a tile of its own
    assert planner.floor_of(problem, H200) <= best.seconds
