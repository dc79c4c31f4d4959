"""An exhaustive search leaves nothing out that matters: its best is the best of every candidate
there is, priced one by one."""

from __future__ import annotations

import math
import random

import pytest
from geometry import core
from geometry.cases import make
from geometry.core import Direction
from model import planner
from model.planner import DIRECT, ONEDNN, Profile, Refused

PROBLEMS, BATCH = 1000, 125
MOST_TILINGS = 100  # of a problem, so that all its candidates are soon priced
EQUAL = 1.01  # ranks that are taken for the same
HIDDEN = 0.03  # of hidden work, that a rank adds
PARTIAL_SUMS_GAIN = 1.25
ROUNDING = 1e-12

# So slow that cutting such small problems up is worth its copies and runs, or not, as it comes.
SLOW = {"fetch_bytes_per_second": 2e7, "drain_bytes_per_second": 2e7, "both_bytes_per_second": 3e7}
PROFILES = [
    Profile(),
    Profile(**SLOW, flops_fallback=1e9),
    Profile(**SLOW, flops_fallback=1e8, shared_engines=True),
    Profile(**{**SLOW, "drain_bytes_per_second": 5e6}, flops_fallback=1e9, copy_seconds=0),
    Profile(**SLOW, flops_fallback=5e7, run_seconds=0),
    Profile(**SLOW, **planner.NO_ROWS, step_seconds=5e-6, hop_seconds=0),
    Profile(**SLOW, move_bytes_per_second=1e7, copy_seconds=1e-8, run_seconds=1e-8),
]
# Of a broad problem, which has some thousand times the bytes and operations.
BROAD = [
    Profile(
        fetch_bytes_per_second=2e10, drain_bytes_per_second=2e10, both_bytes_per_second=3e10,
        far_fetch_row_bytes=1e6, far_drain_row_bytes=1e6, flops_fallback=flops, copy_seconds=0,
    )
    for flops in (1e12, 1e14)
]  # fmt: skip
PIECE = 65536


def small(chance: random.Random) -> core.Problem:
    """Up to four axes that can be cut, of every kind; filters, strides and pads of every kind."""
    direction = chance.choice(list(Direction))
    bias = direction == Direction.BWD_BIAS
    sizes = dict.fromkeys("ngkcdhw", 1)
    room = MOST_TILINGS
    for axis in chance.sample("nghwkd" if bias else "ngkchwd", 4):
        sizes[axis] = chance.randint(1, min(5, room))
        room //= sizes[axis]
    shape: dict[str, list[int]] = {
        name: [] for name in ("input", "filter", "stride", "dilation", "pad_before", "pad_after")
    }
    for axis in "dhw":
        taps = 1 if bias else chance.randint(1, 3 if sizes[axis] > 1 else 1)
        stride, dilation = (1, 1) if bias else (chance.choice((1, 1, 2)), chance.choice((1, 1, 2)))
        reach = (taps - 1) * dilation + 1
        before = chance.randint(0, reach - 1)
        after = chance.choice((before, chance.randint(0, reach - 1)))
        extent = (sizes[axis] - 1) * stride + reach - before - after
        if direction == Direction.BWD_DATA:
            extent = max(1, min(extent, sizes[axis]))  # whose extent is dx's
        shape["input"].append(max(1, reach - before - after, extent))
        for name, value in (("filter", taps), ("stride", stride), ("dilation", dilation)):
            shape[name].append(value)
        shape["pad_before"].append(before)
        shape["pad_after"].append(after)
    problem = make(direction, **{name: sizes[name] for name in "ngkc"}, **shape)
    problem.dtype = chance.randint(0, 3)
    return problem


def broad(chance: random.Random) -> core.Problem:
    """Some rows of x together make a piece of 64 KiB, and one pixel of y: so there are few tilings.
    Where a tile's halo is rolled over, what is left to fetch may be no whole pieces. A bound that
    left that out missed the best of one in 100 of these."""
    dtype, taps = chance.randint(0, 3), chance.randint(2, 24)
    row = PIECE // chance.choice((4, 8, 16, 32)) // (4, 8, 2, 2)[dtype]
    height = chance.randint(24, 60) - 1 + taps
    direction = chance.choice((Direction.FWD, Direction.BWD_FILTER))
    problem = make(direction, n=2, input=(1, height, row), filter=(1, taps, row))
    problem.dtype = dtype
    return problem


def rank_of(cost: dict) -> float:
    busy = cost["fetch_seconds"] + cost["compute_seconds"] + cost["drain_seconds"]
    return cost["seconds"] + HIDDEN * max(busy - cost["seconds"], 0)


def is_partial(one: planner.Candidate) -> bool:
    axis = {Direction.FWD: 3, Direction.BWD_DATA: 2}.get(one.problem.direction)
    return axis is not None and one.counts()[axis] > 1


def least_budget(problem, engine: str) -> int:
    with pytest.raises(Refused) as refused:
        planner.search(problem, 0, engines=engine)
    return refused.value.detail


@pytest.mark.parametrize("seed", range(PROBLEMS // BATCH))
def test_the_best_is_the_best_of_all(seed):
    chance = random.Random(seed)
    for _ in range(BATCH):
        is_broad = chance.random() < 0.25
        problem = broad(chance) if is_broad else small(chance)
        engine = chance.choice((ONEDNN, DIRECT))
        profile = chance.choice(BROAD if is_broad else PROFILES)
        whole = planner.estimate(
            problem,
            core.make_tiling(problem, [2**40] * 7, engine == DIRECT),
            [1] * len(core.OPERANDS),
            engine,
        )
        least = least_budget(problem, engine)
        # Where nothing overlaps, what fits in one tile is not cut, whatever its price.
        most = max(least, whole - 1 if profile.shared_engines else 2 * whole)
        budget = int(least * (most / least) ** chance.random() ** 2)
        found = planner.search(problem, budget, profile, engine, exhaustive=True, best=10_000)
        check(found.ranked, planner.enumerate_all(problem, budget, profile, engine))


def check(found: list[planner.Candidate], every: planner.Enumerated) -> None:
    """Of tiles of one shape: short ones are only tried at the ends of what was found of those."""
    ranked = [one for one in found if one.tiling.taper.length == 0]
    best, partial = ranked[0], is_partial(ranked[0])
    least = min(rank_of(one.cost) for one in ranked if is_partial(one) == partial)
    assert math.isclose(least, every.rank[partial], rel_tol=ROUNDING)
    assert rank_of(best.cost) <= EQUAL * least * (1 + ROUNDING)
    # Partial sums lead where they are so much faster, and only there.
    if partial:
        assert PARTIAL_SUMS_GAIN * every.seconds[True] < EQUAL * every.rank[False]
    else:
        assert every.seconds[False] <= PARTIAL_SUMS_GAIN * EQUAL * every.rank[True]
