"""Contexts of several devices: the results of one device, whatever the shares are."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import numpy as np
import pytest
from engine.cases import HypothesisDraw, random_case, run_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python.support import assert_equal, integers

import oocdnn
from oocdnn import Context, Link

ONE_OF_TWO = r"cpu \(device [12] of 2\): "
# The wires of the devices; 0: none, the device shares the host's memory.
LINKS = st.lists(st.sampled_from([0, 1, 2, 4]), min_size=2, max_size=4)


def names(links) -> list[str]:
    return [f"cpu:link={link}" if link else "cpu" for link in links]


def group(*links: float, **options) -> Context:
    return Context(devices=names(links), **{"budget": "1MiB", "profile": "none"} | options)


def axis_of(context: Context, problem: str) -> str:
    """The axis along which the plan of the problem cuts it."""
    line = next(one for one in context.plan(problem).text.splitlines() if " on axis " in one)
    return line.rsplit(" ", 1)[1]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), LINKS)
def test_random_problems(data, links) -> None:
    case = random_case(HypothesisDraw(data.draw))
    case = type(case)(**case.__dict__ | {"budget": max(case.budget, 64 << 10)})
    outcome = run_case(case, device=",".join(names(links)), profile="none")
    assert outcome.reports == []
    assert outcome.stats.peak_device_bytes <= outcome.budget
    assert outcome.mismatches() == 0


# Problems by the axis of their shares. Output channels are K forward, C in gradients of the input.
FORWARD = {
    "N": "conv2d:fwd x8x4x9x9 w4x4x3x3",
    "groups": "conv2d:fwd x1x32x5x5 w32x1x3x3 grp32",
    "D": "conv3d:fwd x1x2x40x5x5 w2x2x3x3x3 pad1",
    "H": "conv2d:fwd x1x2x40x9 w2x2x3x3 str2 pad1",
    "K": "conv2d:fwd x1x2x3x3 w64x2x3x3",
    "W": "conv2d:fwd x1x2x1x400 w2x2x1x3 pad0x1",
}
BACKWARD = {
    "N": "conv2d:bwd_data x8x4x9x9 w4x4x3x3",
    "H": "conv2d:bwd_data x1x2x40x9 w2x2x3x3 str2 pad1",
    "C": "conv2d:bwd_data x1x64x3x3 w2x64x3x3",
    "K": "conv2d:bwd_filter x1x2x3x3 w64x2x3x3",
}


@pytest.mark.parametrize(("axis", "problem"), [*FORWARD.items(), *BACKWARD.items()])
def test_shares_are_cut_along_the_axis_that_takes_the_least_time(axis: str, problem: str) -> None:
    with group(0, 0) as context:
        assert axis_of(context, problem) == axis


def test_a_filter_gradient_is_the_sum_of_shares() -> None:
    """The sum is exact for integers. A reproducible context cuts channels instead, and has the bits
    of one device."""
    x = np.random.default_rng(0).standard_normal((8, 4, 30, 30), dtype=np.float32)
    dy = np.random.default_rng(1).standard_normal((8, 4, 28, 28), dtype=np.float32)
    problem = "conv2d:bwd_filter x8x4x30x30 w4x4x3x3"
    with Context("cpu", "1MiB", engine="direct", profile="none") as one:
        wanted = one.conv_backward_filter(x, dy, (4, 4, 3, 3))
    with group(0, 0, engine="direct", reproducible=True) as context:
        assert axis_of(context, problem) in ("K", "C")
        assert_equal(context.conv_backward_filter(x, dy, (4, 4, 3, 3)), wanted)
    with group(0, 0, engine="direct") as context:
        assert axis_of(context, problem) == "N"
        old = integers(wanted.shape, 3)
        found = context.conv_backward_filter(x, dy, (4, 4, 3, 3), beta=1, out=old.copy())
        assert np.abs(found - old - wanted).max() < 1e-3
        x, dy = integers(x.shape), integers(dy.shape, 1)
        found = context.conv_backward_filter(x, dy, (4, 4, 3, 3), beta=-1, out=old.copy())
    with Context("cpu", "1MiB", profile="none") as one:
        assert_equal(found, one.conv_backward_filter(x, dy, (4, 4, 3, 3)) - old)


@pytest.mark.parametrize("word", ["bf16", "+relu", "+residual"])
def test_what_comes_after_a_sum_comes_once(word: str) -> None:
    """Rounding to 16 bits, an activation, a residual: the shares are channels."""
    with group(0, 0) as context:
        assert axis_of(context, f"conv2d:bwd_filter x8x4x30x30 w4x4x3x3 {word}") in ("K", "C")


@pytest.mark.parametrize("padding", [0, 4, (9, 2)])
@pytest.mark.parametrize("stride", [1, 3, 7])
@pytest.mark.parametrize("direction", ["data", "filter", "forward"])
def test_rows_that_are_padding_or_are_skipped(direction: str, stride: int, padding) -> None:
    """Steps longer than the filter, padding wider than it: some shares would read padding alone."""
    x, w = integers((1, 2, 40, 3)), integers((3, 2, 2, 1), 1)
    pads = padding if isinstance(padding, tuple) else (padding, padding)
    keywords = {"stride": (stride, 1), "padding": (pads, (0, 0))}
    with group(0, 1, 4, 2) as several, Context("cpu", "1MiB", profile="none") as one:
        y = one.conv2d(x, w, **keywords)
        for _ in range(14):  # shares may be cut anew
            if direction == "forward":
                assert_equal(several.conv2d(x, w, **keywords), y)
            elif direction == "data":
                wanted = one.conv_backward_data(y, w, x.shape, **keywords)
                assert_equal(several.conv_backward_data(y, w, x.shape, **keywords), wanted)
            else:
                wanted = one.conv_backward_filter(x, y, w.shape, **keywords)
                assert_equal(several.conv_backward_filter(x, y, w.shape, **keywords), wanted)


@pytest.mark.parametrize("activation", ["relu", "swish"])
def test_saved_bits_and_their_gradients(activation: str) -> None:
    x, w, b = integers((5, 6, 12, 12)), integers((8, 6, 3, 3), 1), integers((8,), 2)
    results = []
    for context in (group(0, 1, 4), Context("cpu", "1MiB", profile="none")):
        with context:
            z, saved = oocdnn.conv_bias_act_pool(
                x, w, b, activation=activation, pool=2, save_for_backward=True
            )
            dz = integers(z.shape, 4)
            gradients = oocdnn.conv_bias_act_pool_backward(dz, saved, x, w)
            results.append((z, saved.bits, *gradients))
    for mine, wanted in zip(*results, strict=True):
        if activation == "relu":
            assert_equal(mine, wanted)
        else:
            assert np.allclose(mine, wanted, atol=1e-3)


def test_tables_have_rows_for_the_samples_of_a_share() -> None:
    x, w = integers((5, 6, 12, 12)), integers((8, 6, 3, 3), 1)
    prologue = oocdnn.Prologue(integers((5, 6, 2), 2), "relu")
    with group(0, 1, 2) as several, Context("cpu", "1MiB", profile="none") as one:
        found, wanted = (
            context.conv_bias_act_pool(x, w, prologue=prologue) for context in (several, one)
        )
        assert_equal(found, wanted)


def test_chains_are_cut_along_samples(tmp_path) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(7, 6, 20, 20))
    x[:] = integers(x.shape)
    links = [
        Link(integers((8, 6, 3, 3), 1), activation="relu", pool=2),
        Link(integers((8, 8, 3, 3), 2), padding=1, residual=0),
    ]
    with group(0, 1, 2) as several, Context("cpu", "1MiB", profile="none") as one:
        assert_equal(several.conv_chain(x, links), one.conv_chain(x, links))
        assert several.stats.tiles >= 3


def test_files_are_cut_at_offsets(tmp_path) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(7, 6, 20, 20))
    x[:] = integers(x.shape)
    y = np.memmap(tmp_path / "y", np.float32, "w+", shape=(7, 8, 18, 18))
    w = integers((8, 6, 3, 3), 1)
    with group(0, 1) as several, Context("cpu", "1MiB", profile="none") as one:
        several.conv2d(x, w, out=y)
        assert_equal(y, one.conv2d(x, w))


def test_no_samples() -> None:
    with group(0, 1) as context:
        assert context.conv2d(integers((0, 4, 9, 9)), integers((4, 4, 3, 3))).shape == (0, 4, 7, 7)


def test_gradients_of_no_samples_are_zeros(monkeypatch) -> None:
    links = [Link(integers((4, 4, 3, 3)), integers((4,))), Link(integers((4, 4, 3, 3)))]
    x, dz = integers((0, 4, 9, 9)), integers((0, 4, 5, 5))
    with group(0, 1) as context:
        monkeypatch.setattr(context.results, "empty", lambda shape, dtype: np.full(shape, 7, dtype))
        found = context.conv_chain_backward(dz, x, links)
        single = context.conv_backward_filter(x, integers((0, 4, 7, 7)), (4, 4, 3, 3))
    assert found.dx.shape == x.shape
    for dw in (*found.dw, single):
        assert_equal(dw, np.zeros((4, 4, 3, 3), np.float32))
    assert_equal(found.db[0], np.zeros(4, np.float32))


def test_statistics_are_sums_over_the_devices() -> None:
    x, w = integers((8, 4, 30, 30)), integers((4, 4, 3, 3), 1)
    with group(0, 0, wrap="check") as context:
        y = context.conv2d(x, w)
        assert context.stats.bytes_h2d == x.nbytes + 2 * w.nbytes
        assert context.stats.bytes_d2h == y.nbytes
        assert context.check_reports() == []
        assert context.device == "cpu,cpu"


@pytest.mark.parametrize("kind", ["copy", "run", "prepare"])
def test_an_error_names_the_device_and_later_calls_succeed(kind: str) -> None:
    """The first piece of work of its kind fails on each device, in one call or in two."""
    x, w = integers((8, 4, 30, 30)), integers((4, 4, 3, 3), 1)
    with group(0, 2, wrap=f"fault:{kind}:1") as context:
        with pytest.raises(
            oocdnn.DeviceError, match=r"^conv2d:fwd x8x4x30x30 .*: cpu \(device [12] of 2\): "
        ):
            context.conv2d(x, w)
        with suppress(oocdnn.DeviceError):
            context.conv2d(x, w)
        y = context.conv2d(x, w)
    with Context("cpu", "1MiB", profile="none") as one:
        assert_equal(y, one.conv2d(x, w))


def test_a_budget_that_is_too_small_for_a_share() -> None:
    with group(0, 2, budget=64) as context:
        with pytest.raises(
            oocdnn.OutOfMemory, match=r"cpu \(device [12] of 2\): .*too small"
        ) as raised:
            context.conv2d(integers((8, 4, 9, 9)), integers((4, 4, 3, 3)))
        assert raised.value.least > 64


def test_progress_counts_the_tiles_of_all_devices_and_ends_all() -> None:
    x, w = integers((8, 4, 60, 60)), integers((4, 4, 3, 3), 1)
    seen: list[tuple[int, int]] = []
    with group(0, 1, budget="64KiB") as context:
        context.conv2d(x, w, progress=lambda done, total: seen.append((done, total)))
        assert seen
        assert all(done <= total for done, total in seen)

        def stop(done: int, total: int) -> None:
            raise KeyError("enough")

        with pytest.raises(KeyError, match="enough"):
            context.conv2d(x, w, progress=stop)
        context.conv2d(x, w)


def test_a_call_from_its_own_progress_is_refused() -> None:
    x, w = integers((8, 4, 60, 60)), integers((4, 4, 3, 3), 1)
    refused: list[str] = []
    with group(0, 1, budget="64KiB") as context:

        def nested(done: int, total: int) -> None:
            try:
                context.conv2d(x, w)
            except oocdnn.DeviceError as error:
                refused.append(str(error))

        context.conv2d(x, w, progress=nested)
    assert "use another context there" in refused[0]


def test_threads_take_turns() -> None:
    x, w = integers((8, 4, 30, 30)), integers((4, 4, 3, 3), 1)
    with group(0, 1, 2) as context:
        wanted = context.conv2d(x, w)
        found: list[np.ndarray] = []
        threads = [
            threading.Thread(target=lambda: found.append(context.conv2d(x, w))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    for one in found:
        assert_equal(one, wanted)


def test_forked_children_compute_too() -> None:
    """In a child the devices begin anew at the same time, on a thread each."""
    x, w = integers((8, 4, 30, 30)), integers((4, 4, 3, 3), 1)
    with group(*[4] * 8, budget="64KiB") as context:
        wanted = context.conv2d(x, w)
        for _ in range(60):
            child = os.fork()
            if child == 0:
                os._exit(0 if np.array_equal(context.conv2d(x, w), wanted) else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert_equal(context.conv2d(x, w), wanted)


def test_statistics_within_a_callback_are_of_the_call() -> None:
    x, w = integers((8, 4, 60, 60)), integers((4, 4, 3, 3), 1)
    tiles: list[int] = []
    with group(0, 1, budget="64KiB") as context:
        context.conv2d(x, w, progress=lambda done, total: tiles.append(context.stats.tiles))
        assert max(tiles) <= context.stats.tiles


def test_what_concerns_one_device_is_refused() -> None:
    problem = "conv2d:fwd x8x4x9x9 w4x4x3x3"
    with group(0, 1) as context:
        for call in (
            lambda: context.use_plan(problem, "n2"),
            lambda: context.price(problem, "n2"),
            lambda: context.refine(problem, [1.0]),
        ):
            with pytest.raises(oocdnn.Unsupported, match="create one with a single device"):
                call()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"device": "cpu", "devices": ["cpu"]}, "give one of the two"),
        ({"devices": []}, "name at least one device"),
        ({"devices": ["cpu,cpu"]}, "write names such as"),
        ({"devices": ["cpu:link=0"]}, "above 0"),
        ({"device": "cpu,,cpu"}, "a comma between two"),
        ({"device": "cpu,"}, "a comma between two"),
    ],
)
def test_names_that_are_no_devices(given, text: str) -> None:
    with pytest.raises(oocdnn.InvalidProblem, match=text):
        Context(**given)


def test_a_timeline_is_of_one_device() -> None:
    with pytest.raises(oocdnn.Unsupported, match="a timeline is of one device"):
        group(0, 1, trace=True)
