"""The engine for groups of one input channel: exact, with the direct engine's bits, on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.cases import (
    DEVICE,
    DTYPES,
    Case,
    HypothesisDraw,
    call,
    make_inputs,
    reference,
    sized_case,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="the CPU device has no such engine")
DIRECTIONS = ("forward", "backward_data", "backward_filter")


def case(direction: str = "forward", **changes: Any) -> Case:
    """A case of 3x3 filters that keep the size, but for the changes."""
    values = {
        "n": 2, "groups": 5, "k": 1, "c": 1, "extent": (9, 11),
        "taps": 3, "stride": 1, "dilation": 1, "budget": 64 << 20,
    }  # fmt: skip
    return sized_case(direction, **(values | changes))


def result(case: Case, engine: str, budget: int | None = None, **arrays: np.ndarray) -> np.ndarray:
    inputs = make_inputs(case) | arrays
    with oocdnn.Context(DEVICE, budget or case.budget, engine=engine, wrap="check") as ctx:
        out = call(ctx, case, inputs)
        assert ctx.check_reports() == []
    return out


def reals(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case.seed)
    shapes = {"x": case.x_shape, "w": case.w_shape, "y": case.y_shape}
    return {
        name: rng.standard_normal(shape).astype(DTYPES[case.dtype])
        for name, shape in shapes.items()
    }


def check(case: Case) -> None:
    """Exact of integers, and of reals the same bits as the direct engine's."""
    expected = reference(case, make_inputs(case)).astype(DTYPES[case.dtype])
    np.testing.assert_array_equal(result(case, "depthwise"), expected)
    arrays = reals(case)
    seen, wanted = (result(case, engine, **arrays) for engine in ("depthwise", "direct"))
    np.testing.assert_array_equal(bits(seen), bits(wanted))


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


SHAPES = {
    "3x3": {},
    "1x1": {"taps": 1},
    "5x5": {"taps": 5, "extent": (14, 14)},
    "7x7": {"taps": 7, "extent": (14, 28)},
    "2x4": {"taps": (2, 4), "extent": (7, 16)},
    "8x8": {"taps": 8, "extent": (9, 24)},
    "3x17": {"taps": (3, 17), "extent": (8, 33)},
    "31x1": {"taps": (31, 1), "extent": (33, 3)},
    "15x15": {"taps": 15, "extent": (20, 23), "groups": 2},
    "31x31": {"taps": 31, "extent": (35, 36), "n": 1, "groups": 2},
    "stride 2": {"stride": 2, "extent": (12, 14)},
    "stride 3": {"stride": 3, "extent": (13, 10)},
    "stride 2, 4x5": {"stride": 2, "taps": (4, 5), "extent": (13, 17)},
    "strides 1 and 2": {"stride": (1, 2), "taps": 5, "extent": (12, 19)},
    "strides 2 and 1": {"stride": (2, 1), "extent": (12, 19)},
    "stride 2, 15x15": {"stride": 2, "taps": 15, "extent": (21, 22), "groups": 2},
    "dilation 2": {"dilation": 2, "extent": (12, 13)},
    "dilation 3, stride 2": {"dilation": 3, "stride": 2, "extent": (16, 17)},
    "dilation 2, stride 2": {"dilation": 2, "stride": 2, "extent": (16, 17)},
    "far taps": {"taps": 15, "dilation": 6, "extent": (12, 27), "groups": 2},
    "no padding": {"padding": ((0, 0), (0, 0)), "extent": (10, 12)},
    "padding beyond the filter": {"padding": ((4, 1), (0, 5)), "extent": (3, 4)},
    "two channels each": {"k": 2, "extent": (8, 10)},
    "eight channels each": {"k": 8, "groups": 3, "taps": 5, "extent": (8, 9)},
    "one group": {"groups": 1, "k": 3},
    "one image": {"n": 1, "groups": 3},
    "tiny": {"extent": (1, 1), "n": 5, "groups": 17},
    "narrow": {"extent": (30, 1)},
    "wide": {"extent": (3, 700), "n": 1, "groups": 2},
    "many images": {"n": 40, "extent": (7, 7), "groups": 3},
    "tall": {"extent": (180, 20), "n": 1, "groups": 2},
    "1-D": {"extent": (50,), "taps": 9},
    "3-D": {"extent": (6, 7, 9), "groups": 3},
    "3-D, stride 2": {"extent": (7, 8, 9), "groups": 3, "stride": (2, 1, 2)},
    "3-D, odd": {"extent": (5, 9, 16), "taps": (2, 3, 5), "dilation": (2, 1, 1), "k": 2},
    "3-D, deep": {"extent": (24, 12, 12), "groups": 2, "n": 1},
}  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str, direction: str) -> None:
    check(case(direction, **SHAPES[shape]))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("shape", ["3x3", "7x7", "stride 2", "two channels each", "3-D"])
def test_types(shape: str, dtype: str, direction: str) -> None:
    one = case(direction, dtype=dtype, **SHAPES[shape])
    if direction == "backward_filter" and dtype == "f64":
        with pytest.raises(oocdnn.Unsupported, match="go on from block to block"):
            result(one, "depthwise")
        return
    check(one)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    own = HypothesisDraw(draw)
    rank = own.choice((1, 2, 2, 3))
    several = {
        name: tuple(own.choice(choices) for _ in range(rank))
        for name, choices in (
            ("taps", range(1, 8)),
            ("stride", (1, 1, 2, 3)),
            ("dilation", (1, 1, 2, 3)),
        )
    }
    padding = tuple((p, p) for p in (own.integer(0, 4) for _ in range(rank)))
    extent = tuple(
        max((t - 1) * d + 1 - 2 * p[0], 1) + own.integer(0, 20 if rank < 3 else 5)
        for t, d, p in zip(several["taps"], several["dilation"], padding, strict=True)
    )
    return case(
        own.choice(DIRECTIONS), n=own.integer(1, 3), groups=own.integer(1, 6),
        k=own.choice((1, 1, 1, 2, 3)), extent=extent, padding=padding,
        dtype=own.choice(("f32", "f32", "f16", "bf16")), seed=own.integer(0, 2**31), **several,
    )  # fmt: skip


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_random_problems(one: Case) -> None:
    check(one)


CUT = {"n": 3, "groups": 6, "extent": (40, 45), "taps": 5}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_cut_tiles_have_the_same_bits(dtype: str, direction: str) -> None:
    """Those of budgets in which tiles are parts of images, whichever engine of the two serves."""
    one = case(direction, dtype=dtype, **CUT)
    arrays = reals(one)
    inputs = make_inputs(one) | arrays
    whole = result(one, "depthwise", **arrays)
    for budget in (8 << 10, 16 << 10, 48 << 10):
        with oocdnn.Context(DEVICE, budget, wrap="check", reproducible=True) as ctx:
            np.testing.assert_array_equal(bits(call(ctx, one, inputs)), bits(whole))
            assert ctx.stats.tiles > 1


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("operand", ["x", "w", "y"])
def test_a_nan_reaches_what_reads_it(operand: str, direction: str) -> None:
    one = case(direction, extent=(12, 13), stride=2, groups=3)
    arrays = reals(one)
    arrays[operand] = arrays[operand].copy()
    arrays[operand].reshape(-1)[arrays[operand].size // 2] = np.nan
    seen, wanted = (np.isnan(result(one, engine, **arrays)) for engine in ("depthwise", "direct"))
    np.testing.assert_array_equal(seen, wanted)


def test_filters_too_large_for_shared_memory_are_refused() -> None:
    with pytest.raises(oocdnn.Unsupported, match="shared memory"):
        result(case(taps=(101, 101), extent=(20, 20), groups=1, n=1), "depthwise")


def test_it_serves_depthwise_problems_and_no_others() -> None:
    def engine(groups: int, c: int, **options: object) -> str:
        one = case(groups=groups, c=c, k=c)
        inputs = make_inputs(one)
        with oocdnn.Context(DEVICE, one.budget, **options) as ctx:  # type: ignore[arg-type]
            call(ctx, one, inputs)
            return str(ctx.stats.engine)

    assert engine(6, 1, reproducible=True) == "depthwise"
    assert engine(3, 2, reproducible=True) == "direct"
    assert engine(1, 6) != "depthwise"
    with pytest.raises(oocdnn.Unsupported, match="groups of one input channel"):
        engine(3, 2, engine="depthwise")
