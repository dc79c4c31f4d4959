"""Rows of x that a stride skips are not copied to the device, and change no result."""

from __future__ import annotations

import numpy as np
import pytest
from engine.cases import DEVICE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python.support import assert_equal, integers

import oocdnn
from oocdnn.perfmodel.profile import Profile

BUDGET = "256KiB" if DEVICE == "cpu" else "2MiB"


def crossed(context: oocdnn.Context, call, *arguments, **keywords):
    """What the call returns, and the bytes that went to the device."""
    return call(*arguments, **keywords), context.stats.bytes_h2d


@pytest.mark.parametrize("order", ["planes", "channels last"])
def test_only_rows_that_are_read_cross(order: str) -> None:
    """Along H; where channels are next to each other, along W too."""
    x, w = integers((6, 48, 33, 40)), integers((8, 48, 1, 1), 1)
    if order == "channels last":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    with oocdnn.Context(DEVICE, BUDGET, profile="none") as context:
        y, moved = crossed(context, context.conv2d, x, w, stride=(3, 2))
        assert_equal(y, np.einsum("nchw,kc->nkhw", x[:, :, ::3, ::2], w[:, :, 0, 0]))
        columns = 20 if order == "channels last" else 40
        assert moved == 4 * (6 * 48 * 11 * columns + w.size)
        dy = integers(y.shape, 2)
        dw, moved = crossed(context, context.conv_backward_filter, x, dy, w.shape, stride=(3, 2))
        assert_equal(dw[:, :, 0, 0], np.einsum("nchw,nkhw->kc", x[:, :, ::3, ::2], dy))
        assert moved == 4 * (6 * 48 * 11 * columns + dy.size)


def test_the_plan_is_that_of_the_call() -> None:
    problem = "conv2d:fwd x6x48x33x40 w8x48x1x1 str3x2"
    with oocdnn.Context(DEVICE, BUDGET, profile="none") as context:
        context.use_plan(problem, "n2 h4")
        assert "n2 g1 k8 c48 d1 h4" in context.plan(problem).plan
        context.conv2d(integers((6, 48, 33, 40)), integers((8, 48, 1, 1), 1), stride=(3, 2))
        assert (context.stats.split["n"], context.stats.split["h"]) == (3, 3)


def test_short_rows_are_copied_with_those_between() -> None:
    x, w = integers((2, 4, 31, 8)), integers((4, 4, 1, 1), 1)
    with oocdnn.Context(DEVICE, BUDGET, profile="none") as context:
        y, moved = crossed(context, context.conv2d, x, w, stride=2)
        assert_equal(y, np.einsum("nchw,kc->nkhw", x[:, :, ::2, ::2], w[:, :, 0, 0]))
        assert moved == 4 * (x.size + w.size)


@pytest.mark.skipif(DEVICE != "cpu", reason="the budget is one of the CPU device")
def test_links_that_run_by_themselves_skip_rows() -> None:
    """Here the filters of both links do not fit the budget together."""
    x = integers((6, 48, 32, 40))
    first, second = integers((256, 48, 1, 1), 1), integers((160, 256, 1, 1), 2)
    links = [oocdnn.Link(first, stride=2), oocdnn.Link(second)]
    with oocdnn.Context(DEVICE, "200KiB", profile="none") as context:
        y, moved = crossed(context, context.conv_chain, x, links)
        between = np.einsum("nchw,kc->nkhw", x[:, :, ::2, ::2], first[:, :, 0, 0])
        assert_equal(y, np.einsum("nchw,kc->nkhw", between, second[:, :, 0, 0]))
        again, alone = crossed(context, context.conv2d, x, first, stride=2)
        _, rest = crossed(context, context.conv2d, again, second)
        assert moved == alone + rest


@pytest.mark.parametrize(("columns", "skips"), [(1000, False), (1024, True)])
def test_rows_of_files_are_skipped_by_pages(tmp_path, columns: int, skips: bool) -> None:
    """Each is a read of its own."""
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(1, 3, 9, columns))
    x[:] = integers(x.shape)
    w = integers((2, 3, 1, 1), 1)
    with oocdnn.Context(DEVICE, BUDGET, profile="none") as context:
        y, moved = crossed(context, context.conv2d, x, w, stride=(2, 1))
        assert_equal(y, np.einsum("nchw,kc->nkhw", x[:, :, ::2], w[:, :, 0, 0]))
        assert moved == 4 * (3 * (5 if skips else 9) * columns + w.size)


@pytest.mark.parametrize("direction", ["fwd", "bwd_filter"])
def test_plans_for_other_machines_are_of_the_rows_that_are_read(direction, tmp_path) -> None:
    file = tmp_path / "profile.txt"
    file.write_text(Profile(flops={"direct/f32/fwd": 1e12}).text(), encoding="utf-8")
    whole, thin = (
        oocdnn.plan_for_profile(f"conv2d:{direction} {problem}", file, "4MiB")
        for problem in (
            "x8x96x112x112 w96x96x1x1 str2",
            "x8x96x56x112 w96x96x1x1 str1x2 xs:1204224x12544x224x1",
        )
    )
    assert (whole.plan, whole.bytes_h2d) == (thin.plan, thin.bytes_h2d)


def test_padding_has_rows_of_its_own() -> None:
    x, w = integers((2, 4, 31, 40)), integers((4, 4, 1, 1), 1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    with oocdnn.Context(DEVICE, BUDGET, profile="none") as context:
        y = context.conv2d(x, w, stride=(2, 1), padding=(1, 0))
        assert_equal(y, np.einsum("nchw,kc->nkhw", padded[:, :, ::2], w[:, :, 0, 0]))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    taps=st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 3),
    strides=st.tuples(*[st.integers(1, 4)] * 3),
    extents=st.tuples(st.integers(3, 9), st.integers(3, 20), st.integers(3, 40)),
    last=st.booleans(),
    groups=st.sampled_from([1, 2]),
    beta=st.sampled_from([0.0, 1.0]),
)
def test_any_window(taps, strides, extents, last, groups, beta) -> None:
    """The same values as of the same call on the strided view, where it skips nothing."""
    x, w = integers((3, 4 * groups, *extents)), integers((2 * groups, 4, *taps), 1)
    if last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        x = np.moveaxis(x, -1, 1)
    windows = list(zip(taps, strides, strict=True))
    thin = x[(..., *(slice(None, None, s if t == 1 else 1) for t, s in windows))]
    rest = tuple(1 if t == 1 else s for t, s in windows)
    with oocdnn.Context(DEVICE, BUDGET, profile="none") as context:
        wanted = context.conv3d(np.ascontiguousarray(thin), w, stride=rest, groups=groups)
        out = integers(wanted.shape, 3)
        before = out.copy()
        context.conv3d(x, w, stride=strides, groups=groups, beta=beta, out=out)
        assert_equal(out, wanted + np.float32(beta) * before)
        dy = integers(wanted.shape, 4)
        dw = context.conv_backward_filter(
            np.ascontiguousarray(thin), dy, w.shape, stride=rest, groups=groups
        )
        again = context.conv_backward_filter(x, dy, w.shape, stride=strides, groups=groups)
        assert_equal(again, dw)
