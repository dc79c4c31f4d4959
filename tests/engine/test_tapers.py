"""Tilings with short tiles at the ends of an axis, through the public API: the exact sum, without a
hazard, in every direction, memory order and type and on every engine that serves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from counted import Counted
from engine.cases import (
    AXES,
    DEVICE,
    DIRECTIONS,
    DTYPES,
    Case,
    Draw,
    HypothesisDraw,
    RandomDraw,
    call,
    make_inputs,
    random_case,
    reference,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

WORDS = {
    "forward": "fwd", "backward_data": "bwd_data", "backward_filter": "bwd_filter",
    "backward_bias": "bwd_bias",
}  # fmt: skip
LETTERS = "ngkcdhw"


def sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def text_of(case: Case) -> str:
    """The problem string of a case whose arrays have no gaps."""
    rank = len(case.extent)
    words = [f"conv{rank}d:{WORDS[case.direction]}"]
    if case.direction == "backward_bias":
        words.append(f"y{sizes(case.y_shape)}")
    else:
        pads = "x".join(f"{before}:{after}" for before, after in case.padding)
        words += [f"x{sizes(case.x_shape)}", f"w{sizes(case.w_shape)}", f"pad{pads}"]
        words += [f"str{sizes(case.stride)}", f"dil{sizes(case.dilation)}", f"grp{case.groups}"]
        words += ["flip"] if case.mode == "convolution" else []
    words += [case.dtype, f"alpha{case.alpha:g}", f"beta{case.beta:g}"]
    if case.layout == "channels_last":
        words.append({1: "nwc", 2: "nhwc", 3: "ndhwc"}[rank])
    return " ".join(words)


def extents(case: Case) -> list[int]:
    """Of the axes that are cut, by their letters."""
    driving = case.extent if case.direction == "backward_data" else case.out
    lifted = (*(1,) * (3 - len(driving)), *driving)
    channels = 1 if case.direction == "backward_bias" else case.c
    groups, k = (case.groups, case.k)
    if case.direction == "backward_bias":
        groups, k = 1, case.groups * case.k
    return [case.n, groups, k, channels, *lifted]


def tapered_plan(draw: Draw, case: Case, axis: int) -> str:
    """A plan that cuts the axis, with short ends, and sometimes others."""
    whole = extents(case)
    usual = draw.integer(2, whole[axis] - 1)
    words = [f"{LETTERS[axis]}{usual}"]
    words += [
        f"{LETTERS[other]}{draw.integer(1, whole[other])}"
        for other in range(7)
        if other != axis and draw.choice((True, False, False))
    ]
    short = draw.integer(1, usual - 1)
    return " ".join([*words, f"slots {draw.integer(1, 3)} taper {LETTERS[axis]}{short}"])


def run(case: Case, plan: str, **options: Any) -> oocdnn.Plan | None:
    """Runs the case by the plan, and gives the plan as it was followed; nothing where the engine
    wants what all tiles use in two layouts, or whole strides leave a single tile."""
    arrays, text = make_inputs(case), text_of(case)
    with oocdnn.Context(device=DEVICE, budget="64MiB", wrap="check", **options) as ctx:
        try:
            ctx.use_plan(text, plan)
        except oocdnn.Unsupported as error:
            if "has another layout in short tiles" not in str(error):
                raise
            return None
        except oocdnn.InvalidProblem as error:
            if case.direction != "backward_data" or "axis that is cut" not in str(error):
                raise
            return None
        result = call(ctx, case, arrays)
        followed = ctx.plan(text)
        assert ctx.check_reports() == []
        assert ctx.stats.tiles == followed.tiles
        assert ctx.stats.split == followed.splits
    expected = reference(case, arrays).astype(DTYPES[case.dtype])
    np.testing.assert_array_equal(result, expected)
    return followed


def plain(draw: Draw, direction: str | None = None) -> Case:
    case = random_case(draw)
    # Arrays of one channel or one pixel would be of either memory order.
    sizes = (case.groups * case.c, case.groups * case.k, *case.extent, *case.out)
    last = case.layout == "channels_last" and min(sizes) > 1
    layout = "channels_last" if last else "channels_first"
    chosen = {"layout": layout, "direction": direction or case.direction}
    return Case(**{**case.__dict__, **chosen})


@st.composite
def cases(draw) -> tuple[Case, str]:
    drawn = HypothesisDraw(draw)
    case = plain(drawn)
    axes = [axis for axis, extent in enumerate(extents(case)) if extent > 2]
    if not axes:
        return case, ""
    return case, tapered_plan(drawn, case, drawn.choice(axes))


def test_random_tapers_give_the_exact_sum():
    counted = Counted()

    @settings(
        max_examples=120,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(cases())
    def check(case):
        counted.begin()
        problem, plan = case
        if plan and run(problem, plan, engine="direct") is not None:
            counted.done()

    check()
    counted.need(0.5)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_axis_tapers(direction, axis):
    if direction == "backward_bias" and axis in ("C", "groups"):
        pytest.skip("backward bias has neither C nor groups")
    number, found = list(AXES).index(axis), 0
    for seed in range(400):
        draw = RandomDraw(np.random.default_rng(seed))
        case = plain(draw, direction)
        if extents(case)[number] > 3:
            plan = run(case, tapered_plan(draw, case, number), engine="direct")
            found += plan is not None and f" taper {LETTERS[number]}" in plan.plan
        if found == 3:
            return
    raise AssertionError(f"{found} tapers")


ENGINES = ["onednn", "reference"] if DEVICE == "cpu" else []


@pytest.mark.parametrize("engine", ENGINES)
def test_other_engines_follow_tapers_or_refuse_them(engine):
    followed = 0
    for seed in range(40):
        draw = RandomDraw(np.random.default_rng(seed))
        case = plain(draw)
        axes = [axis for axis, extent in enumerate(extents(case)) if extent > 3]
        if not axes:
            continue
        if engine == "onednn" and (case.dtype == "f64" or case.direction == "backward_bias"):
            continue
        plan = run(case, tapered_plan(draw, case, draw.choice(axes)), engine=engine)
        followed += plan is not None
        if followed == 5:
            return
    raise AssertionError(f"{followed} plans followed")


def test_ends_are_short():
    case = Case(
        "forward", n=7, groups=1, k=2, c=2, extent=(8,), taps=(3,), stride=(1,),
        padding=((1, 1),), dilation=(1,),
    )  # fmt: skip
    plan = run(case, "n2 taper n1", engine="direct")
    assert plan is not None
    assert plan.splits["n"] == 1 + 3  # 1, 2, 2, 2
    assert "N 7 in 4 of 2 (1 at the ends)" in plan.text
    plan = run(case, "n3 taper n2", engine="direct")
    assert plan is not None
    assert plan.splits["n"] == 3  # 2, 3, 2


def test_reproducible_results_may_be_tapered():
    case = Case(
        "backward_filter", n=2, groups=1, k=3, c=3, extent=(600,), taps=(3,), stride=(1,),
        padding=((1, 1),), dilation=(1,),
    )  # fmt: skip
    run(case, "n1 w400 order nw taper w200", engine="direct", reproducible=True)
    with pytest.raises(oocdnn.InvalidProblem, match="reproducible"):
        run(case, "w400 order wn n1 taper w200", engine="direct", reproducible=True)
    with pytest.raises(oocdnn.InvalidProblem, match=r"reproducible.* multiples of 200"):
        run(case, "n1 w400 order nw taper w100", engine="direct", reproducible=True)
