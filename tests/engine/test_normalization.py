"""A prologue and sums in every plan: equal, bit by bit, to normalising, convolving and summing up
one after the other. Scales and shifts are whole numbers or halves, so that all of it is exact."""

from dataclasses import dataclass, replace

import numpy as np
import oracle
import pytest
from engine.cases import (
    AXES,
    DEVICE,
    DTYPES,
    Case,
    HypothesisDraw,
    RandomDraw,
    forced_case,
    make_inputs,
    random_case,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

ACTIVATIONS = (None, "relu", ("clipped_relu", 2.0))


@dataclass
class Ran:
    y: np.ndarray
    sums: oocdnn.Sums
    stats: oocdnn.Stats
    reports: list[str]
    budget: int


@st.composite
def normalized(draw):
    case = random_case(HypothesisDraw(draw))
    return (
        turned(case, draw(st.booleans())),
        draw(st.sampled_from(ACTIVATIONS)),
        draw(st.booleans()),
    )


def turned(case: Case, forward: bool) -> Case:
    """The case as a convolution or a transposed one."""
    return replace(case, direction="forward" if forward else "backward_data")


def table_of(case: Case, source: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(case.seed)
    table = rng.integers(-2, 3, (*source.shape[:2], 2)) / 2
    return table.astype(np.float64 if case.dtype == "f64" else np.float32)


def normalize(source: np.ndarray, table, activation) -> np.ndarray:
    wide = source.astype(np.float64)
    if table is not None:
        pairs = table.astype(np.float64).reshape(*source.shape[:2], *[1] * (source.ndim - 2), 2)
        wide = wide * pairs[..., 0] + pairs[..., 1]
    if isinstance(activation, tuple):
        return oracle.activate(wide, "clip", activation[1])
    return oracle.activate(wide, activation or "identity")


def expected(case: Case, arrays, table, activation) -> np.ndarray:
    window = {**case.window(), "flip": case.mode == "convolution"}
    if case.direction == "forward":
        x = normalize(arrays["x"], table, activation)
        total = oracle.forward(x, arrays["w"], **window)
    else:
        y = normalize(arrays["y"], table, activation)
        total = oracle.backward_data(y, arrays["w"], case.x_shape, **window)
    old = arrays["y" if case.direction == "forward" else "x"].astype(np.float64)
    return oracle.finish(total, alpha=case.alpha, beta=case.beta, old=old).astype(
        DTYPES[case.dtype]
    )


def call(ctx, case: Case, arrays, prologue, sums) -> np.ndarray:
    keywords = {"alpha": case.alpha, "beta": case.beta, "mode": case.mode}
    keywords |= {"prologue": prologue, "sums": sums}
    rank, forward = len(case.extent), case.direction == "forward"
    if case.beta:
        keywords["out"] = arrays["y" if forward else "x"].copy()
    if forward:
        return getattr(ctx, f"conv{rank}d")(arrays["x"], arrays["w"], **case.window(), **keywords)
    room = [
        extent + sum(pads) - (taps - 1) * gap - 1
        for extent, pads, taps, gap in zip(
            case.extent, case.padding, case.taps, case.dilation, strict=True
        )
    ]
    rest = [r % step for r, step in zip(room, case.stride, strict=True)]
    return getattr(ctx, f"conv_transpose{rank}d")(
        arrays["y"], arrays["w"], output_padding=rest, **case.window(), **keywords
    )


def run(case: Case, arrays, prologue, **options) -> Ran:
    budget = case.budget
    for _ in range(2):
        with oocdnn.Context(DEVICE, budget, wrap="check", **case.options, **options) as ctx:
            sums = oocdnn.Sums()
            try:
                y = call(ctx, case, arrays, prologue, sums)
            except oocdnn.OutOfMemory as error:
                if budget != case.budget or not error.least > budget:
                    raise
                budget = error.least
                continue
            return Ran(y, sums, ctx.stats, ctx.check_reports(), budget)
    raise AssertionError("unreachable")


def check(case: Case, activation, affine: bool, **options) -> Ran:
    arrays = make_inputs(case)
    source = arrays["x" if case.direction == "forward" else "y"]
    table = table_of(case, source) if affine else None
    ran = run(case, arrays, oocdnn.Prologue(table, activation), **options)
    wanted = expected(case, arrays, table, activation)
    assert ran.reports == []
    assert ran.stats.peak_device_bytes <= ran.budget
    np.testing.assert_array_equal(ran.y.astype(np.float64), wanted.astype(np.float64))
    wide = wanted.astype(np.float64).reshape(*wanted.shape[:2], -1)
    np.testing.assert_array_equal(ran.sums.table, np.stack([wide.sum(2), (wide**2).sum(2)], 2))
    assert ran.sums.count == wide.shape[2]
    return ran


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(normalized())
def test_random_problems(drawn):
    check(*drawn)


@pytest.mark.parametrize(
    "engine", ["onednn", "direct", "reference"] if DEVICE == "cpu" else ["direct"]
)
@pytest.mark.parametrize("seed", range(1, 7))
def test_every_engine(engine, seed):
    case = turned(random_case(RandomDraw(np.random.default_rng(seed))), seed % 2 == 0)
    if engine == "onednn" and case.dtype == "f64":
        pytest.skip("oneDNN has no float64 convolution")
    check(case, ACTIVATIONS[seed % 3], True, engine=engine)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_every_axis_is_split(direction, axis):
    """Rolled rows are normalised once, and each element is in the sums once."""
    draw = RandomDraw(np.random.default_rng(list(AXES).index(axis)))
    case = replace(forced_case(draw, direction, axis, (1_500, 2_500)), beta=0.0)
    ran = check(case, "relu", True)
    assert ran.stats.split[AXES[axis]] > 1
