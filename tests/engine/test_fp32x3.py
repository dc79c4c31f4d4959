"""float32 by three products of TF32: exact, no less accurate than float32, on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.cases import DEVICE, Case, HypothesisDraw, call, make_inputs, reference, sized_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="the CPU device has no such engine")
DIRECTIONS = ("forward", "backward_data", "backward_filter")
LARGE = 256 << 20


def case(direction: str = "forward", **changes: Any) -> Case:
    """A case of 3x3 filters that keep the size, but for the changes."""
    values = {
        "n": 2, "groups": 1, "k": 8, "c": 12, "extent": (9, 11),
        "taps": 3, "stride": 1, "dilation": 1, "budget": 64 << 20,
    }  # fmt: skip
    return sized_case(direction, **(values | changes))


def result(case: Case, budget: int | None = None, **arrays: np.ndarray) -> np.ndarray:
    inputs = make_inputs(case) | arrays
    with oocdnn.Context(
        DEVICE, budget or case.budget, engine="fp32x3", math="fp32x3", wrap="check"
    ) as ctx:
        out = call(ctx, case, inputs)
        assert ctx.check_reports() == []
    return out


def check(case: Case, budget: int | None = None) -> None:
    expected = reference(case, make_inputs(case)).astype(np.float32)
    np.testing.assert_array_equal(result(case, budget), expected)


SHAPES = {
    "3x3": {},
    "1x1": {"taps": 1, "c": 40, "k": 36},
    "7x5": {"taps": (7, 5), "extent": (12, 13)},
    "odd channels": {"c": 7, "k": 9},
    "channels of many blocks": {"c": 70, "k": 150, "extent": (5, 6)},
    "one output channel": {"k": 1, "c": 33, "extent": (8, 8), "taps": 7},
    "three images' channels": {"c": 3, "k": 64, "taps": 4},
    "few output channels": {"k": 12, "c": 64, "extent": (8, 9)},
    "groups": {"groups": 3, "c": 8, "k": 4},
    "odd groups": {"groups": 2, "c": 5, "k": 7},
    "dilation": {"dilation": 2, "extent": (12, 13)},
    "no padding": {"padding": ((0, 0), (0, 0)), "extent": (10, 12)},
    "padding beyond the filter": {"padding": ((4, 1), (0, 5)), "extent": (6, 7)},
    "many pixels": {"n": 5, "extent": (33, 35), "c": 4, "k": 4},
    "several tiles of a block": {"extent": (370, 370), "c": 4, "k": 4},
    "several tiles of odd channels": {"extent": (371, 370), "c": 5, "k": 5},
    "1-D": {"extent": (50,), "taps": 9},
    "3-D": {"extent": (6, 7, 9), "c": 4, "k": 4},
    "3-D, odd": {"extent": (5, 9, 16), "taps": (2, 3, 5), "dilation": (2, 1, 1), "c": 4, "k": 3},
}  # fmt: skip
STRIDED = {
    "stride 2": {"stride": 2, "extent": (12, 14)},
    "strides 1 and 3": {"stride": (1, 3), "taps": 5, "extent": (12, 19)},
    "dilation 2, stride 2": {"dilation": 2, "stride": 2, "extent": (16, 17)},
    "3-D, stride 2": {"extent": (7, 8, 9), "stride": (2, 1, 2), "c": 4},
}  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_whole_numbers_are_exact(shape: str, direction: str) -> None:
    check(case(direction, **SHAPES[shape]))


@pytest.mark.parametrize("direction", ["forward", "backward_filter"])
@pytest.mark.parametrize("shape", STRIDED)
def test_strides(shape: str, direction: str) -> None:
    check(case(direction, **STRIDED[shape]))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("budget", [200_000, 600_000])
def test_tiles(budget: int, direction: str) -> None:
    check(case(direction, n=3, c=16, k=20, extent=(24, 40)), budget)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_problems(data: st.DataObject) -> None:
    draw = HypothesisDraw(data.draw)
    rank = draw.integer(1, 3)
    direction = draw.choice(DIRECTIONS)
    strided = direction != "backward_data" and draw.integer(0, 1) == 1
    one = case(
        direction,
        n=draw.integer(1, 3), groups=draw.integer(1, 2),
        k=draw.integer(1, 20), c=draw.integer(1, 20),
        extent=tuple(draw.integer(4, 9) for _ in range(rank)),
        taps=tuple(draw.integer(1, 3) for _ in range(rank)),
        stride=tuple(draw.integer(1, 2) if strided else 1 for _ in range(rank)),
        dilation=tuple(draw.integer(1, 2) for _ in range(rank)),
        padding=tuple((draw.integer(0, 2), draw.integer(0, 2)) for _ in range(rank)),
    )  # fmt: skip
    if min(one.y_shape) < 1 or terms_of(one) < 32:
        return
    check(one)


def terms_of(case: Case) -> int:
    taps = int(np.prod(case.taps))
    if case.direction == "forward":
        return case.c * taps
    if case.direction == "backward_data":
        return case.k * taps
    return int(case.n * np.prod(case.y_shape[2:]))


def relative_error(case: Case, got: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The error of each element over the sum of the magnitudes of its products."""
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    magnitudes = {name: np.abs(array) for name, array in exact.items()}
    return (got - reference(case, exact)) / reference(case, magnitudes)


def reals(case: Case, positive: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    draw = rng.random if positive else rng.standard_normal
    shapes = {"x": case.x_shape, "w": case.w_shape, "y": case.y_shape}
    drawn = {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}
    return make_inputs(case) | drawn


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("positive", [False, True], ids=["signed", "positive"])
@pytest.mark.parametrize(
    ("c", "extent"), [(8, (6, 6)), (64, (6, 6)), (512, (4, 4)), (2048, (4, 4)), (4, (40, 40))]
)
def test_the_error_is_at_most_twice_that_of_float32(
    c: int, extent: tuple[int, int], positive: bool, direction: str
) -> None:
    """Of direct float32: the direct engine's blocked sums, whose error is smaller than that of a
    sum in one run; a unit in the last place beside it is the rounding of the result."""
    summed = ("k", "c") if direction == "backward_data" else ("c", "k")
    one = case(direction, extent=extent, **dict(zip(summed, (c, 8), strict=True)))
    arrays = reals(one, positive)
    with oocdnn.Context(DEVICE, LARGE, engine="direct") as ctx:
        direct = relative_error(one, call(ctx, one, arrays), arrays)
    split = relative_error(one, result(one, LARGE, **arrays), arrays)
    unit = 2.0**-24
    assert np.sqrt(np.mean(split**2)) <= 2 * np.sqrt(np.mean(direct**2)) + unit / 4
    assert np.abs(split).max() <= 2 * np.abs(direct).max() + unit


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_tiles_have_the_bits_of_the_whole(direction: str) -> None:
    """Where tiles cut no sums."""
    one = case(direction, n=3, c=16, k=20, extent=(24, 40))
    arrays = reals(one, positive=False)
    whole, tiled = (result(one, budget, **arrays) for budget in (LARGE, 400_000))
    np.testing.assert_array_equal(whole.view(np.uint32), tiled.view(np.uint32))


def test_the_same_bits_at_every_run() -> None:
    one = case("backward_filter", n=4, extent=(40, 41))
    arrays = reals(one, positive=False)
    first, second = (result(one, **arrays) for _ in range(2))
    np.testing.assert_array_equal(first.view(np.uint32), second.view(np.uint32))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_nan_or_an_infinity_reaches_what_reads_it_alone(value: float) -> None:
    """An infinity gives NaN there."""
    one = case(n=1, c=8, k=8, extent=(9, 11))
    inputs = make_inputs(one)
    inputs["x"][0, 3, 4, 5] = value
    got = result(one, **inputs)
    touched = np.zeros(got.shape, bool)
    touched[:, :, 3:6, 4:7] = True
    np.testing.assert_array_equal(np.isnan(got), touched)


@pytest.mark.parametrize(
    "one",
    [
        case("backward_data", stride=2, extent=(12, 14)),
        case(c=3),
        case("backward_filter", n=1, extent=(5, 6)),
    ],
    ids=["strided", "short sums", "few pixels"],
)
def test_what_it_does_not_take_another_engine_does(one: Case) -> None:
    expected = reference(one, make_inputs(one)).astype(np.float32)
    with oocdnn.Context(DEVICE, one.budget, math="fp32x3") as ctx:
        np.testing.assert_array_equal(call(ctx, one, make_inputs(one)), expected)
    with pytest.raises(oocdnn.Unsupported, match="sums of 32 terms"):
        result(one)


def test_padding_beyond_32_bits_is_left_to_others() -> None:
    far = 2**32
    x, w = np.ones((1, 32, 1), np.float32), np.ones((1, 32, 1), np.float32)
    with oocdnn.Context(DEVICE, "8MiB", math="fp32x3") as ctx:
        out = ctx.conv1d(x, w, padding=far, stride=far)
        np.testing.assert_array_equal(out, [[[0, 32, 0]]])
    with (
        oocdnn.Context(DEVICE, "8MiB", engine="fp32x3", math="fp32x3") as ctx,
        pytest.raises(oocdnn.Unsupported, match="takes at most 1073741824 elements"),
    ):
        ctx.conv1d(x, w, padding=far, stride=far)


def test_other_types_have_one_arithmetic() -> None:
    x, w = np.ones((2, 16, 9, 9), np.float16), np.ones((4, 16, 3, 3), np.float16)
    with oocdnn.Context(DEVICE, "8MiB", math="fp32x3") as ctx:
        ctx.conv2d(x, w)
        assert "/fp32x3" not in str(ctx.plan("conv2d:fwd x2x16x9x9 w4x16x3x3 f16"))


def test_it_is_not_taken_unasked() -> None:
    one = case()
    with (
        oocdnn.Context(DEVICE, one.budget, engine="fp32x3") as ctx,
        pytest.raises(oocdnn.Unsupported, match="ask for fp32x3 or fp32_fast"),
    ):
        call(ctx, one, make_inputs(one))


def test_fp32_fast_admits_it() -> None:
    one = case()
    arrays = reals(one, positive=False)
    with oocdnn.Context(DEVICE, one.budget, engine="fp32x3", math="fp32_fast") as ctx:
        seen = call(ctx, one, arrays)
    np.testing.assert_array_equal(seen.view(np.uint32), result(one, **arrays).view(np.uint32))


def test_reproducible_results_are_the_direct_engine_s() -> None:
    one = case()
    arrays = reals(one, positive=False)
    with oocdnn.Context(DEVICE, one.budget, math="fp32x3", reproducible=True) as ctx:
        seen = call(ctx, one, arrays)
    with oocdnn.Context(DEVICE, one.budget, engine="direct") as ctx:
        wanted = call(ctx, one, arrays)
    np.testing.assert_array_equal(seen.view(np.uint32), wanted.view(np.uint32))
