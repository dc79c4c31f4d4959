"""Batches in parts that are used where they lie: every operand on the device, nothing copied, one
workspace for all parts. The sum is exact, and gradients are added up from the right beginning."""

from __future__ import annotations

import numpy as np
import pytest
from engine.cases import (
    DEVICE,
    DIRECTIONS,
    DTYPES,
    Case,
    Draw,
    HypothesisDraw,
    RandomDraw,
    call,
    make_inputs,
    reference,
)
from engine.test_tapers import plain, text_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="a GPU's own arrays are in tests/gpu")
RESIDENT = "check,resident"  # all memory counts as the device's


def on_device(case: Case) -> str:
    """The problem string of a case whose operands lie on the device."""
    places = {
        "forward": "x@dev w@dev y@dev",
        "backward_data": "dy@dev w@dev dx@dev",
        "backward_filter": "x@dev dy@dev dw@dev",
        "backward_bias": "dy@dev db@dev",
    }[case.direction]
    return f"{text_of(case)} {places}" + (" old@dev" if case.beta else "")


def aligned(values: np.ndarray) -> np.ndarray:
    """The same elements in the same order, where tiles may begin."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    flat = memory[begin : begin + values.nbytes].view(values.dtype)
    copy = np.lib.stride_tricks.as_strided(flat, values.shape, values.strides)
    copy[...] = values
    return copy


def run(case: Case, plan: str, **options) -> oocdnn.Stats:
    """Follows the plan, and compares exactly."""
    arrays = {name: aligned(values) for name, values in make_inputs(case).items()}
    with oocdnn.Context("cpu", "64MiB", wrap=RESIDENT, **options) as ctx:
        ctx.use_plan(on_device(case), plan)
        result = call(ctx, case, arrays)
        assert ctx.check_reports() == []
        stats = ctx.stats
    np.testing.assert_array_equal(result, reference(case, arrays).astype(DTYPES[case.dtype]))
    return stats


def divided_plan(draw: Draw, case: Case) -> str:
    """Parts of the batch, and where they do not divide it a shorter one."""
    samples = draw.integer(1, case.n - 1)
    rest = case.n % samples
    return f"n{samples}" + (f" taper n{rest}" if rest else "")


@st.composite
def cases(draw) -> tuple[Case, str]:
    drawn = HypothesisDraw(draw)
    case = Case(**{**plain(drawn).__dict__, "n": drawn.integer(2, 9)})
    return case, divided_plan(drawn, case)


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases(), st.sampled_from(["direct", "reference"]))
def test_random_divisions_give_the_exact_sum(case, engine):
    problem, plan = case
    stats = run(problem, plan, engine=engine)
    assert stats.split["n"] == stats.tiles
    assert stats.tiles > 1
    assert stats.bytes_h2d == stats.bytes_d2h == 0


# Samples of whole multiples of 16 bytes.
SMALL = {
    "n": 7, "groups": 2, "k": 4, "c": 2, "extent": (6, 8), "taps": (3, 3), "stride": (1, 1),
    "padding": ((1, 1), (1, 1)), "dilation": (1, 1),
}  # fmt: skip


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("beta", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_first_part_begins_with_beta_and_the_others_add(direction, beta, layout):
    case = Case(direction, **SMALL, beta=beta, layout=layout, seed=3)
    for plan in ("n1", "n3 taper n1", "n2 taper n1"):
        run(case, plan, engine="direct")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nothing_is_copied_where_tiles_lie_as_the_arrays_do(direction):
    """What is booked is less than a sample of x or y: partial sums, and a bias's gradient."""
    case = Case(direction, **{**SMALL, "extent": (12, 16)})
    arrays = {name: aligned(values) for name, values in make_inputs(case).items()}
    with oocdnn.Context("cpu", 4096, wrap=RESIDENT, engine="reference") as ctx:
        ctx.use_plan(on_device(case), "n3 taper n1")
        out = {"forward": "y", "backward_data": "x", "backward_filter": "w"}.get(direction, "b")
        target = aligned(np.full_like(arrays[out], np.nan))
        arrays_before = {name: values.copy() for name, values in arrays.items()}
        call_into(ctx, case, arrays, target)
        assert ctx.stats.tiles == 3
        assert ctx.stats.peak_device_bytes < arrays["x"].nbytes // case.n
        assert ctx.check_reports() == []
    np.testing.assert_array_equal(target, reference(case, arrays).astype(np.float32))
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, arrays_before[name])


def call_into(ctx: oocdnn.Context, case: Case, arrays: dict[str, np.ndarray], out) -> None:
    x, w, y = (arrays[name] for name in "xwy")
    moves = case.window()
    if case.direction == "forward":
        ctx.conv2d(x, w, out=out, **moves)
    elif case.direction == "backward_data":
        ctx.conv_backward_data(y, w, case.x_shape, out=out, **moves)
    elif case.direction == "backward_filter":
        ctx.conv_backward_filter(x, y, case.w_shape, out=out, **moves)
    else:
        ctx.conv_backward_bias(y, out=out)


def test_samples_that_are_not_aligned_are_copied():
    """Of 3 x 5 floats each; the second begins where no tile may."""
    case = Case("forward", **{**SMALL, "groups": 1, "c": 1, "extent": (3, 5), "k": 4})
    arrays = {name: aligned(values) for name, values in make_inputs(case).items()}
    target = aligned(np.full(case.y_shape, np.nan, np.float32))
    peaks = []
    for plan in ("n1", "n4 taper n3", "n4"):
        with oocdnn.Context("cpu", "1MiB", wrap=RESIDENT, engine="reference") as ctx:
            ctx.use_plan(on_device(case), plan)
            call_into(ctx, case, arrays, target)
            peaks.append(ctx.stats.peak_device_bytes)
        np.testing.assert_array_equal(target, reference(case, arrays))
    # y's samples are aligned whatever the plan; x has slots, but where all tiles begin aligned.
    # Without a taper the last tile would reach past the batch, and both have.
    assert peaks[0] > 0
    assert peaks[2] > peaks[1]


@pytest.mark.parametrize("plan", ["n7", "n1"])
def test_a_tile_that_begins_in_the_padding_has_a_slot(plan):
    """It is as wide as x: the column of padding that it has, x has at its end, where no tap is."""
    sizes = {"extent": (6, 4), "taps": (1, 2), "stride": (1, 2), "padding": ((0, 0), (1, 0))}
    run(Case("forward", **{**SMALL, **sizes}), plan, engine="direct")


def test_an_engine_that_blocks_its_tiles_has_slots():
    done = 0
    for seed in range(20):
        draw = RandomDraw(np.random.default_rng(seed))
        case = Case(**{**plain(draw).__dict__, "n": 6, "dtype": "f32"})
        if case.direction != "backward_bias":
            done += run(case, "n3", engine="onednn").tiles == 2
    assert done > 3


def test_a_mirrored_gradient_is_added_to_where_it_lies():
    """Its old values were once read from behind it: five taps are 16 bytes from last to first."""
    sizes = {**SMALL, "taps": (1, 5), "mode": "convolution"}
    run(Case("backward_filter", **sizes, beta=1.0), "n7", engine="direct")
    run(Case("backward_filter", **sizes, beta=1.0), "n3 taper n1", engine="direct")


@pytest.mark.parametrize("variable", [False, True])
def test_a_limit_that_an_engine_does_not_keep_names_it(variable, monkeypatch):
    """No budget helps, so none is named."""
    case = Case("forward", **{**SMALL, "groups": 1, "k": 32, "c": 32})
    arrays = make_inputs(case)
    if variable:
        monkeypatch.setenv("OOCDNN_WORKSPACE_LIMIT", "0")
    with (
        oocdnn.Context("cpu", "64MiB", engine="direct", workspace=None if variable else 0) as ctx,
        pytest.raises(oocdnn.Unsupported, match="the limit of workspace is 0 B, allow more"),
    ):
        call(ctx, case, arrays)


def test_a_calls_limit_of_workspace_comes_before_the_contexts():
    x, w = np.ones((2, 32, 9, 9), np.float32), np.ones((32, 32, 3, 3), np.float32)
    for limit, own in ((0, 1 << 20), (1 << 20, 0)):
        with oocdnn.Context("cpu", "64MiB", engine="direct", workspace=limit) as ctx:
            if own:
                np.testing.assert_array_equal(ctx.conv2d(x, w, workspace=own), 288.0)
            with pytest.raises(oocdnn.Unsupported, match="the limit of workspace is 0 B"):
                ctx.conv2d(x, w, workspace=None if own else 0)


def test_a_plan_says_what_is_used_where_it_lies():
    with oocdnn.Context("cpu", "64MiB", engine="reference", wrap="resident") as ctx:
        text = ctx.plan(on_device(Case("forward", **SMALL))).text
    assert "x in place, w in place, y in place; 0 B in all" in text


@pytest.mark.parametrize("kind", ["prepare", "allocate", "run", "copy", "event"])
def test_what_fails_while_parts_are_planned_or_run_is_an_error_or_is_made_up_for(kind):
    """Whichever call it is; and the next call is right."""
    case = Case("forward", **SMALL)
    arrays = {name: aligned(values) for name, values in make_inputs(case).items()}
    expected, failed = reference(case, arrays).astype(np.float32), 0
    for number in range(1, 9):
        wrap = f"fault:{kind}:{number},resident"
        with oocdnn.Context("cpu", "64MiB", wrap=wrap, engine="direct", workspace="8KiB") as ctx:
            try:
                result = call(ctx, case, arrays)
            except (oocdnn.DeviceError, oocdnn.OutOfMemory):
                failed += 1
                result = call(ctx, case, arrays)
            np.testing.assert_array_equal(result, expected)
    assert failed > 0 or kind not in ("run", "event")
