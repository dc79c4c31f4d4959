"""Fused calls whose operands lie on the device: tiles of z and of its bits are parts of the
caller's arrays, y has a tile of its own, and nothing crosses."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from engine.cases import DEVICE, DTYPES, HypothesisDraw
from engine.test_divided import RESIDENT, aligned, divided_plan
from engine.test_fused import (
    AVERAGED,
    OVERLAPPING,
    Case,
    arrays_of,
    composed,
    context,
    keywords_of,
    random_case,
    small,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="a GPU's own arrays are in tests/gpu")
PLACES = ("x", "w", "b", "scale", "residual", "z", "saved")
WORDS = {"max": "maxpool", "avg": "avgpool", "avg_inside": "avgpoolin"}


def sizes(values) -> str:
    return "x".join(map(str, values))


def pairs(values) -> str:
    return "x".join(f"{before}:{after}" for before, after in values)


def pool_words(pool: oracle.Pool) -> list[str]:
    words = [f"+{WORDS[pool.mode]}{sizes(pool.window)}", f"poolstr{sizes(pool.stride)}"]
    return [*words, f"poolpad{pairs(pool.padding)}", *["poolceil"] * pool.ceil]


def text_of(case: Case, saves: bool) -> str:
    """The problem string of a case whose arrays have no gaps and lie on the device."""
    rank = len(case.extent)
    x = (case.n, case.groups * case.c, *case.extent)
    words = [f"conv{rank}d:fwd", f"x{sizes(x)}", f"w{sizes((case.groups * case.k, case.c))}"]
    words[-1] += f"x{sizes(case.taps)}"
    words += [f"pad{pairs(case.padding)}", f"str{sizes(case.stride)}", f"grp{case.groups}"]
    words += [case.dtype, f"alpha{case.alpha:g}"]
    if case.layout == "channels_last":
        words.append({1: "nwc", 2: "nhwc", 3: "ndhwc"}[rank])
    for name in ("scale", "bias", "residual"):
        words += [f"+{name}"] * getattr(case, name)
    words += {"identity": [], "relu": ["+relu"], "clip": ["+clip6"]}[case.activation]
    words += pool_words(case.pool) if case.pool else []
    return " ".join([*words, *["+saved"] * saves, *(f"{name}@dev" for name in (*PLACES, "y"))])


def run(case: Case, plan: str, saves: bool, **options) -> oocdnn.Stats:
    """Follows the plan, or without one what is chosen, and compares exactly."""
    arrays = {name: aligned(values) for name, values in arrays_of(case).items()}
    z, bits = composed(case, arrays)
    expected = z.astype(DTYPES[case.dtype])
    saves = saves and bits is not None
    keywords: dict[str, Any] = keywords_of(case)
    with context(wrap=RESIDENT, **{"budget": "64MiB", **options}) as ctx:
        if plan:
            ctx.use_plan(text_of(case, saves), plan)
        made = ctx.conv_bias_act_pool(**arrays, **keywords, save_for_backward=saves)
        assert ctx.check_reports() == []
        stats = ctx.stats
    result, saved = made if saves else (made, None)
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))
    if saves:
        np.testing.assert_array_equal(saved.bits, bits.ravel())
    assert stats.bytes_h2d == stats.bytes_d2h == 0
    return stats


def plain(draw) -> Case:
    """Arrays of one channel or one pixel would be of either memory order."""
    case = random_case(draw, layout="channels_first")
    counts = (case.groups * case.c, case.groups * case.k, *case.extent, *case.y_extents)
    last = min(counts) > 1 and draw.choice((True, False))
    return Case(**{**case.__dict__, "layout": "channels_last" if last else "channels_first"})


@st.composite
def cases(draw) -> tuple[Case, str]:
    drawn = HypothesisDraw(draw)
    case = Case(**{**plain(drawn).__dict__, "n": drawn.integer(2, 9)})
    return case, drawn.choice(("", divided_plan(drawn, case)))


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases(), st.booleans(), st.sampled_from(["direct", "reference"]))
def test_random_chains_on_the_device(case, saves, engine):
    problem, plan = case
    stats = run(problem, plan, saves, engine=engine)
    assert stats.split["n"] == stats.tiles
    assert (stats.tiles > 1) == (plan != "")


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("pool", [None, OVERLAPPING, AVERAGED], ids=["none", "over", "avg"])
@pytest.mark.parametrize("plan", ["n7", "n1", "n3 taper n1", "n2 taper n1"])
def test_every_division(plan, pool, layout):
    run(small(pool, n=7, layout=layout, residual=True), plan, True, engine="direct")


def test_only_a_tile_of_y_and_the_bias_are_booked():
    case = small(OVERLAPPING, n=7)
    text = text_of(case, True)
    with context(budget="64MiB", engine="reference", wrap="resident") as ctx:
        ctx.use_plan(text, "n3 slots 1 taper n1")
        plan = ctx.plan(text)
    assert "z in place, saved in place" in plan.text
    tile = 3 * 8 * 15 * 50 * 4
    assert plan.booked_bytes == tile + 64  # a bias takes a whole alignment


def test_a_residual_as_long_as_the_rows_of_its_windows_has_a_slot():
    """With uneven padding y's tile begins a row before y, and is as long as y is: in place it
    would be read from in front of the array."""
    pool = oracle.Pool("max", (3, 3), (3, 3), ((1, 0), (1, 0)))
    case = small(pool, extent=(9, 9), padding=((2, 0), (2, 0)), residual=True, n=4)
    for plan in ("n4", "n1"):
        run(case, plan, True, engine="direct")
    with context(budget="64MiB", engine="direct", wrap="resident") as ctx:
        text = ctx.plan(text_of(case, True)).text
    assert "residual resident" in text
    assert "z in place" in text


def test_a_call_has_a_limit_of_its_own():
    arrays = arrays_of(small(OVERLAPPING, groups=1, k=32, c=32))
    with context(engine="direct") as ctx:
        ctx.conv_bias_act_pool(**arrays, pool=2)
        with pytest.raises(oocdnn.Unsupported, match="the limit of workspace is 0 B, allow more"):
            ctx.conv_bias_act_pool(**arrays, pool=2, workspace=0)
