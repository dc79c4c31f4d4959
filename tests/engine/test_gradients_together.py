"""dx, dw and db of conv_bias_act_pool in one call: one pass over dz wherever the core can make one,
the same numbers as calls of their own give, and every byte across the wire once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counted import Counted
from engine.cases import HypothesisDraw
from engine.test_fused import (
    APART,
    OVERLAPPING,
    STEPS,
    Case,
    arrays_of,
    context,
    keywords_of,
    small,
)
from engine.test_fused_backward import (
    NEEDS,
    POOLS,
    Gradients,
    backward_case,
    gradients_of,
    need_equal,
    problem_of,
    saved_of,
    unit_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn
from oocdnn.perfmodel.profile import Profile

UNHURRIED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
BUDGET = 256 << 10


def together(ctx, made: Gradients, saved: Any, needs=NEEDS, **keywords) -> dict[str, np.ndarray]:
    x, w = made.arrays["x"], made.arrays["w"]
    got = ctx.conv_bias_act_pool_backward(made.dz, saved, x, w, needs=needs, **keywords)
    return dict(zip(needs, got, strict=True))


def in_one_pass(ctx, got: dict[str, np.ndarray]) -> bool:
    """Whether the last call has written them all."""
    return ctx.stats.bytes_d2h == sum(one.nbytes for one in got.values())


def need_all(made: Gradients, got: dict[str, np.ndarray]) -> None:
    for need, value in got.items():
        need_equal(made, need, value)


def read(made: Gradients, saved: Any, needs=NEEDS) -> int:
    """The bytes that one pass has to read."""
    x = made.arrays["x"].nbytes if "dw" in needs else 0
    w = made.arrays["w"].nbytes if "dx" in needs else 0
    return made.dz.nbytes + saved.nbytes + w + x


def least_budget(made: Gradients, saved: Any, budget: int) -> int:
    """That budget, or where a gradient alone needs more, what that needs."""
    for need in NEEDS:
        with context(budget=budget) as ctx:
            try:
                together(ctx, made, saved, (need,))
            except oocdnn.OutOfMemory as error:
                budget = max(budget, error.least)
    return budget


def several(pool: Any, **changes) -> Case:
    """More samples than fit at once, each of which does."""
    return small(pool, **{"n": 8, **changes})


def single(case: Case) -> Case:
    """Without a factor, which has the gradients computed apart."""
    return replace(case, alpha=1.0)


@st.composite
def cases(draw) -> Case:
    return backward_case(HypothesisDraw(draw))


@UNHURRIED
@given(
    cases(),
    st.sampled_from([NEEDS, ("db", "dx"), ("dx", "dw"), ("dw", "db")]),
    st.sampled_from([None, None, *STEPS]),
)
def test_random_chains(case, needs, smooth):
    case = replace(case, activation=smooth or case.activation)
    made = gradients_of(case)
    saved = saved_of(made)
    budget = least_budget(made, saved, case.budget)
    with context(budget=budget, wrap="check") as ctx:
        got = together(ctx, made, saved, needs)
        assert ctx.check_reports() == []
        assert ctx.stats.peak_device_bytes <= budget
    need_all(made, got)


def test_one_pass_gives_what_calls_of_their_own_give():
    counted = Counted()

    @UNHURRIED
    @given(cases(), st.integers(1, 3), st.sampled_from(["cross_correlation", "convolution"]))
    def check(case, dilation, mode):
        counted.begin()
        case = single(case)
        arrays = arrays_of(case)
        keywords = keywords_of(case) | {"mode": mode, "save_for_backward": True}
        with context(budget=1 << 20, wrap="check") as ctx:
            try:
                z, saved = ctx.conv_bias_act_pool(**arrays, **keywords, dilation=dilation)
            except oocdnn.InvalidProblem:  # a filter reaches farther than x, or windows than y
                return
            rng = np.random.default_rng(case.seed)
            dz = rng.integers(-2, 3, z.shape) * unit_of(case)
            made = Gradients(case, arrays, dz.astype(z.dtype))
            got = together(ctx, made, saved)
            alone = {need: together(ctx, made, saved, (need,))[need] for need in NEEDS}
            assert ctx.check_reports() == []
        for need in NEEDS:
            np.testing.assert_array_equal(got[need], alone[need], err_msg=need)
        counted.done()

    check()
    counted.need(0.5)


@pytest.fixture(scope="module")
def slow_wires(tmp_path_factory) -> Path:
    """A profile by which bytes are what a plan costs: tiles this small cost copies as much."""
    rates = dict.fromkeys(("fetch", "drain", "both"), 1e6)
    slow = Profile(**{f"{wire}_bytes_per_second": rate for wire, rate in rates.items()})
    path = tmp_path_factory.mktemp("profile") / "slow.txt"
    path.write_text(slow.text(), encoding="utf-8")
    return path


@pytest.mark.parametrize("layout", ["channels_first", "channels_last", "gapped"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("needs", [NEEDS, ("dx", "dw"), ("dx", "db"), ("dw", "db")], ids="-".join)
@pytest.mark.parametrize("activation", ["relu", "elu0"])
def test_every_byte_crosses_once(slow_wires, activation, needs, pool, layout):
    made = gradients_of(several(POOLS[pool], layout=layout, activation=activation))
    saved = saved_of(made)
    with context(budget=BUDGET, wrap="check", profile=slow_wires) as ctx:
        got = together(ctx, made, saved, needs)
        assert ctx.check_reports() == []
        assert ctx.stats.tiles > 1
        assert in_one_pass(ctx, got)
        assert ctx.stats.bytes_h2d == read(made, saved, needs)
    need_all(made, got)


@pytest.mark.parametrize("activation", ["relu", "swish"])
@pytest.mark.parametrize("pool", POOLS)
def test_predicted_bytes_are_those_that_cross(pool, activation):
    made = gradients_of(several(POOLS[pool], activation=activation))
    saved = saved_of(made)
    with context(budget=BUDGET) as ctx:
        plan = ctx.plan(f"{problem_of(made.case, 'dx')} +dw +db")
        got = together(ctx, made, saved)
        assert in_one_pass(ctx, got)
        assert (plan.bytes_h2d, plan.bytes_d2h) == (ctx.stats.bytes_h2d, ctx.stats.bytes_d2h)


def test_dz_alone_is_fetched_where_nothing_came_after_y():
    made = gradients_of(several(None, activation="identity"))
    saved = saved_of(made)
    assert saved.nbytes == 0
    with context(budget=BUDGET) as ctx:
        got = together(ctx, made, saved)
        assert in_one_pass(ctx, got)
        assert ctx.stats.bytes_h2d == read(made, saved)
    need_all(made, got)


WIDELY_PADDED = small(APART, padding=((3, 3), (3, 3)))
REFUSED = {
    "padding": (WIDELY_PADDED, {}, {}),
    "factor": (small(APART, alpha=2.0), {}, {}),
    "reproducible": (small(APART), {"reproducible": True}, {}),
    "old values": (small(APART), {}, {"beta": 1.0}),
    "large filter": (small(APART, k=24, c=24), {"budget": 24 << 10}, {}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_pass_can_do_takes_a_call_for_each(why):
    case, options, keywords = REFUSED[why]
    made = gradients_of(case)
    saved = saved_of(made)
    if "beta" in keywords:
        keywords = {**keywords, "out": {need: made.expected[need].astype("f4") for need in NEEDS}}
        made.expected = {need: 2 * value for need, value in made.expected.items()}
    with context(**{"budget": BUDGET, "wrap": "check", **options}) as ctx:
        got = together(ctx, made, saved, **keywords)
        assert ctx.check_reports() == []
        assert not in_one_pass(ctx, got)
    need_all(made, got)


def test_results_go_where_they_are_wanted():
    made = gradients_of(several(OVERLAPPING))
    saved = saved_of(made)
    rows = np.full((*made.expected["dw"].shape, 2), np.nan, np.float32)
    out = {"dw": rows[..., 0], "dx": np.full(made.expected["dx"].shape, np.nan, np.float32)}
    with context(budget=BUDGET) as ctx:
        got = together(ctx, made, saved, out=out)
        assert in_one_pass(ctx, got)
    assert got["dw"] is out["dw"]
    assert got["dx"] is out["dx"]
    assert np.isnan(rows[..., 1]).all()
    need_all(made, got)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ({"dw": np.zeros(3, np.float32)}, "dw has shape"),
        ({"db": np.zeros(3, np.float32)}, "db has shape"),
        ({"dx": np.zeros(3, np.float32)}, "dx has shape"),
        ({"dX": np.zeros(3, np.float32)}, "out has 'dX', which is not among needs"),
        ({"db": np.zeros(8, np.int32)}, "db has elements of type int32"),
    ],
)
def test_wrong_results_are_told_of(out, words):
    made = gradients_of(small(APART))
    with context() as ctx:
        saved = saved_of(made)
        with pytest.raises((oocdnn.InvalidProblem, oocdnn.InvalidDtype), match=words):
            together(ctx, made, saved, out=out)


def test_results_that_overlap_are_refused():
    made = gradients_of(small(APART))
    room = np.zeros(made.expected["dw"].size, np.float32)
    out = {"dw": room.reshape(made.expected["dw"].shape), "db": room[: made.expected["db"].size]}
    with context() as ctx:
        saved = saved_of(made)
        with pytest.raises(oocdnn.InvalidProblem, match="db overlaps dw"):
            together(ctx, made, saved, out=out)


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize(("need", "read"), [("dx", "x"), ("dw", "w"), ("dx", "dz")])
def test_results_in_what_is_read_are_refused(factor, need, read):
    """A call for each gradient might write what the next is to read."""
    made = gradients_of(small(APART, alpha=factor))
    size = made.expected[need].size
    room = np.zeros(max(size, made.dz.size), np.float32)
    with context() as ctx:
        saved = saved_of(made)
        if read == "dz":
            made = replace(made, dz=room[: made.dz.size].reshape(made.dz.shape))
            out = room[:size].reshape(made.expected[need].shape)
        else:
            out = made.arrays[read]
        with pytest.raises(oocdnn.InvalidProblem, match=f"{need} overlaps {read}"):
            together(ctx, made, saved, out={need: out})


def test_a_pass_that_is_refused_leaves_its_arrays(monkeypatch):
    case, options, _ = REFUSED["large filter"]
    made = gradients_of(case)
    with context(**options) as ctx:
        saved, asked = saved_of(made), []
        real = ctx.results.empty
        monkeypatch.setattr(
            ctx.results, "empty", lambda *args, **more: asked.append(args) or real(*args, **more)
        )
        got = together(ctx, made, saved)
        assert not in_one_pass(ctx, got)
    need_all(made, got)
    assert len(asked) <= len(NEEDS)


def test_warm_calls_prepare_and_allocate_nothing():
    made = gradients_of(several(OVERLAPPING))
    saved = saved_of(made)
    with context(budget=BUDGET) as ctx:
        for call in range(4):
            assert in_one_pass(ctx, together(ctx, made, saved))
            assert call == 0 or ctx.stats.device_allocations == ctx.stats.prepared == 0
