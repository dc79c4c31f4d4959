"""Chains through the public API: exactly what a call for each link gives, within the budget, and
over the wire once what the links do not make themselves."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from counted import Counted
from engine.cases import DEVICE, DTYPES, lay_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn
from oocdnn import Link

LAYOUTS = ("channels_first", "channels_last")
ACTIVATIONS = (None, "relu", ("clipped_relu", 6.0))


@pytest.fixture(scope="module")
def context():
    with oocdnn.Context(DEVICE, "64MiB") as made:
        yield made


def integers(rng, shape, dtype, largest=2):
    return rng.integers(-largest, largest + 1, shape).astype(dtype)


@st.composite
def pools(draw, extent):
    """A pool or None, and the extents behind it."""
    window, pad = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    pad, ceil = min(pad, window - 1), draw(st.booleans())
    stride = draw(st.integers(1, 3))
    after = [oracle.pooled_extent(e, pad, pad, window, stride, ceil) for e in extent]
    if draw(st.booleans()) or min(after) < 1:
        return None, extent
    mode = draw(st.sampled_from(["max", "avg"]))
    return oocdnn.Pool(mode, window, stride, pad, ceil), after


@st.composite
def same(draw, extent):
    """Windows that give as many rows as there are, also uneven ones, and these extents."""
    taps = [draw(st.integers(1, 3)) for _ in extent]
    gaps = [draw(st.integers(1, 2)) for _ in extent]
    lost = [(t - 1) * g for t, g in zip(taps, gaps, strict=True)]
    before = [draw(st.sampled_from([n // 2, n, 0])) for n in lost]
    pads = [(b, n - b) for b, n in zip(before, lost, strict=True)]
    return taps, [1 for _ in extent], gaps, pads, extent


@st.composite
def moves(draw, extent):
    """Any windows that fit, and the extents behind them."""
    pads = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in extent]
    room = [e + sum(p) for e, p in zip(extent, pads, strict=True)]
    taps = [draw(st.integers(1, min(3, r))) for r in room]
    gaps = [draw(st.integers(1, 2)) for _ in extent]
    gaps = [g if (t - 1) * g < r else 1 for g, t, r in zip(gaps, taps, room, strict=True)]
    stride = [draw(st.integers(1, 2)) for _ in extent]
    sizes = zip(room, gaps, taps, stride, strict=True)
    return taps, stride, gaps, pads, [(r - (t - 1) * g - 1) // s + 1 for r, g, t, s in sizes]


@st.composite
def residuals(draw, shapes, summed, rng, dtype):
    """Of what is there one that is shaped as the sum, or the caller's own, or none."""
    there = [i - 1 for i, shape in enumerate(shapes) if shape == summed]
    named = ["x" if i < 0 else i for i in there]
    chosen = draw(st.sampled_from([None, "array", *named, *named]))
    return integers(rng, summed, dtype) if chosen == "array" else chosen


@st.composite
def chains(draw):
    """x, and links that go together. In half of the chains most links keep the shape."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rank, dtype = draw(st.integers(1, 3)), DTYPES[draw(st.sampled_from(["f32", "f64", "bf16"]))]
    channels = draw(st.integers(1, 5))
    extent = [draw(st.integers(1, 9 if rank == 3 else 20)) for _ in range(rank)]
    x = integers(rng, (draw(st.integers(1, 5)), channels, *extent), dtype)
    links, shapes, adds = [], [x.shape], draw(st.booleans())
    for _ in range(draw(st.integers(1, 5))):
        keeps = adds and draw(st.integers(0, 3)) > 0
        groups = draw(st.sampled_from([g for g in (1, channels) if channels % g == 0]))
        k = channels if keeps else groups * draw(st.integers(1, 3 if groups < 3 else 1))
        taps, stride, gaps, pads, extent = draw(same(extent) if keeps else moves(extent))
        summed = (x.shape[0], k, *extent)
        pool, extent = (None, extent) if keeps else draw(pools(extent))
        links.append(
            Link(
                integers(rng, (k, channels // groups, *taps), dtype, 1),
                integers(rng, (k,), dtype) if draw(st.booleans()) else None,
                stride=stride,
                padding=pads,
                dilation=gaps,
                groups=groups,
                activation=("clipped_relu", 6.0) if keeps else draw(st.sampled_from(ACTIVATIONS)),
                pool=pool,
                residual=draw(residuals(shapes, summed, rng, dtype)) if adds else None,
                residual_alpha=draw(st.sampled_from([1.0, -2.0])),
                mode=draw(st.sampled_from(["cross_correlation", "convolution"])),
            )
        )
        channels = k
        shapes.append((x.shape[0], k, *extent))
    return lay_out(x, draw(st.sampled_from(LAYOUTS))), links


def link_by_link(context, x, links):
    made = [x]
    for link in links:
        fields = {name: value for name, value in vars(link).items() if name not in ("w", "b")}
        if is_named(link):
            fields["residual"] = made[0 if link.residual == "x" else link.residual + 1]
        made.append(context.conv_bias_act_pool(made[-1], link.w, link.b, **fields))
    return made[-1]


def is_named(link):
    """Whether what it adds is of the chain."""
    return isinstance(link.residual, (int, str))


def runs_depth_first(links):
    """Whether no strides are between what is added and what it is added to."""
    for number, link in enumerate(links):
        if not is_named(link):
            continue
        first = 0 if link.residual == "x" else link.residual + 1
        strides = [stride for one in links[first : number + 1] for stride in one.stride]
        strides += [one.pool.stride for one in links[first:number] if one.pool is not None]
        if max(strides) > 1:
            return False
    return True


def parameters(links):
    """Bytes of all that links have of their own."""
    own = [array for link in links for array in (link.w, link.b, link.residual)]
    return sum(array.nbytes for array in own if isinstance(array, np.ndarray))


def test_a_chain_is_a_call_for_each_link(context):
    """In one go, and in sections; small integers are as exact in TF32."""
    sections, added, counted = [], [], Counted()

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        chain=chains(),
        budget=st.sampled_from(["64MiB", "12KiB", "6KiB"]),
        math=st.sampled_from(["fp32", "tf32"]),
    )
    def check(chain, budget, math):
        counted.begin()
        x, links = chain
        wanted = link_by_link(context, x, links)
        with oocdnn.Context(DEVICE, budget, profile="none", math=math) as mine:
            try:
                z = mine.conv_chain(x, links)
            except oocdnn.OutOfMemory:
                assert budget != "64MiB"
                return
            stats = mine.stats
        np.testing.assert_array_equal(z.astype(np.float64), wanted.astype(np.float64))
        assert z.dtype == x.dtype
        sections.append(stats.bytes_d2h > z.nbytes)
        added.append(any(map(is_named, links)) and not sections[-1])
        if budget == "64MiB" and runs_depth_first(links):
            # x is fetched again for a link by itself, and where a copy cannot read the tiles of x,
            # as oneDNN's, which it blocks.
            again = sum(link.residual == "x" for link in links if is_named(link))
            apart = len(links) == 1 or "onednn" in stats.engine
            times = 1 + (again if apart else 0)
            assert stats.bytes_h2d <= times * x.nbytes + parameters(links)
            assert stats.bytes_d2h == z.nbytes
        counted.done()

    check()
    counted.need(0.5)
    assert sum(sections) > 5
    assert sum(added) > 5


@pytest.mark.parametrize("budget", ["12KiB", "24KiB", "64KiB"])
def test_sections_of_links_that_group_channels_otherwise(budget):
    """The strides in which a section leaves its result are not those in which the next reads it."""
    rng = np.random.default_rng(10)
    x = integers(rng, (2, 4, 32, 32), np.float32)
    shapes = {1: (8, 4, 3, 3), 2: (8, 4, 3, 3), 8: (8, 1, 3, 3)}
    links = [
        Link(integers(rng, shape, np.float32), padding=1, groups=groups)
        for groups, shape in shapes.items()
    ]
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    with oocdnn.Context(DEVICE, budget, profile="none") as small:
        z = small.conv_chain(x, links)
        assert small.stats.bytes_d2h > z.nbytes
    np.testing.assert_array_equal(z, wanted)


def vgg(channels: int, rng) -> list[Link]:
    """Thirteen convolutions, of which five pool, as VGG16 has them."""
    made, before = [], 3
    for times, convolutions in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
        for i in range(convolutions):
            k = channels * times
            w, b = integers(rng, (k, before, 3, 3), np.float32, 1), integers(rng, k, np.float32)
            pool = 2 if i + 1 == convolutions else None
            clip = ("clipped_relu", 3.0)
            made.append(Link(w, b, padding=1, activation=clip, pool=pool))
            before = k
    return made


def check_within(budget, x, links) -> None:
    """As a call for each link gives it, within the budget, and again without preparing anything."""
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    with oocdnn.Context(DEVICE, budget, profile="none") as small:
        z = small.conv_chain(x, links)
        stats = small.stats
        assert stats.peak_device_bytes <= stats.budget_bytes
        np.testing.assert_array_equal(z, wanted)
        if budget == "64MiB":  # all links at once
            assert stats.bytes_h2d == x.nbytes + parameters(links)
            assert stats.bytes_d2h == z.nbytes
        assert small.conv_chain(x, links, out=z) is z
        assert (small.stats.prepared, small.stats.device_allocations) == (0, 0)
        np.testing.assert_array_equal(z, wanted)


def test_the_chains_that_were_used_last_are_kept() -> None:
    links = [Link(np.ones((2, 2, 3, 3), np.float32), padding=1)] * 2
    with oocdnn.Context(DEVICE, "64MiB", profile="none") as context:

        def prepared(samples: int) -> int:
            context.conv_chain(np.ones((samples, 2, 5, 5), np.float32), links)
            return context.stats.prepared

        first, *others = range(1, 18)
        assert all(prepared(samples) > 0 for samples in (first, *others))
        assert all(prepared(samples) == 0 for samples in others)
        assert prepared(first) > 0


def check_in_pieces(budget, x, links) -> None:
    """A large sample, the same within a budget that no inner tensor fits."""
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    with oocdnn.Context(DEVICE, budget, profile="none") as small:
        np.testing.assert_array_equal(small.conv_chain(x, links), wanted)
        stats = small.stats
    assert stats.peak_device_bytes <= stats.budget_bytes
    assert stats.tiles > 8


@pytest.mark.parametrize("budget", ["64MiB", "2MiB", "1MiB", "600KiB", "256KiB"])
def test_a_deep_chain_within_every_budget(budget):
    rng = np.random.default_rng(0)
    links, x = vgg(8, rng), integers(rng, (6, 3, 64, 64), np.float32)
    check_within(budget, x, links)


def test_a_sample_in_pieces():
    """One image whose inner tensors pass the budget many times."""
    rng = np.random.default_rng(1)
    links = [
        Link(integers(rng, (8, c, 3, 3), np.float32, 1), padding=1, activation="relu")
        for c in (3, 8, 8)
    ]
    x = integers(rng, (1, 3, 256, 256), np.float32, 1)
    check_in_pieces("512KiB", x, links)


def test_memory_of_every_kind(tmp_path):
    rng = np.random.default_rng(2)
    links = vgg(2, rng)[:4]
    x = integers(rng, (5, 3, 16, 16), np.float32)
    file = np.memmap(tmp_path / "x", np.float32, "w+", shape=x.shape)
    file[:] = x
    with oocdnn.Context(DEVICE, "1MiB") as context:
        wanted = link_by_link(context, x, links)
        out = np.memmap(tmp_path / "z", np.float32, "w+", shape=wanted.shape)
        context.conv_chain(file, links, out=out)
        np.testing.assert_array_equal(out, wanted)
        pinned = oocdnn.empty(x.shape, np.float32, pinned=True)
        pinned[:] = x
        np.testing.assert_array_equal(context.conv_chain(pinned, links), wanted)


def test_no_budget_for_the_least_tile():
    x, links = np.ones((1, 3, 64, 64), np.float32), vgg(4, np.random.default_rng(5))[:3]
    with oocdnn.Context(DEVICE, 300) as context, pytest.raises(oocdnn.OutOfMemory) as raised:
        context.conv_chain(x, links)
    assert "link" in str(raised.value) or "chain" in str(raised.value)


@pytest.mark.skipif(DEVICE != "cpu", reason="oneDNN is an engine of the CPU device")
@pytest.mark.parametrize("count", [2, 3])
def test_no_engine_for_any_link(count):
    """Once sections were chosen for ever."""
    try:
        context = oocdnn.Context("cpu", "1MiB", engine="onednn", reproducible=True)
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    x, links = np.ones((1, 3, 64, 64), np.float32), vgg(4, np.random.default_rng(5))[:count]
    with context, pytest.raises(oocdnn.Unsupported, match="no engine serves"):
        context.conv_chain(x, links)


def test_what_is_between_sections_may_be_pageable():
    """It is more than may be pinned."""
    rng = np.random.default_rng(6)
    links, x = vgg(4, rng)[:6], integers(rng, (6, 3, 64, 64), np.float32)
    with oocdnn.Context(DEVICE, "64KiB", host_cap=256 << 10, profile="none") as context:
        wanted = link_by_link(context, x, links)
        np.testing.assert_array_equal(context.conv_chain(x, links), wanted)


def test_an_empty_batch():
    links = vgg(1, np.random.default_rng(3))[:2]
    with oocdnn.Context(DEVICE, "1MiB") as context:
        z = context.conv_chain(np.zeros((0, 3, 8, 8), np.float32), links)
    assert z.shape == (0, 1, 4, 4)


def test_what_does_not_go_together():
    w = np.ones((2, 3, 3, 3), np.float32)
    x = np.ones((1, 3, 8, 8), np.float32)
    chain = oocdnn.Chain([Link(w), Link(w)])
    with pytest.raises(oocdnn.InvalidProblem, match="link 1 of a chain: w has 3 on axis 1"):
        chain(x)
    with pytest.raises(oocdnn.InvalidProblem, match="without links"):
        oocdnn.conv_chain(x, [])
    with pytest.raises(oocdnn.InvalidProblem, match="link 0 of a chain is of type ndarray"):
        oocdnn.Chain([w])
    wrong = {
        "'gelu'": Link(np.ones((3, 3, 1, 1), np.float32), activation="gelu"),
        "mode": Link(np.ones((3, 3, 1, 1), np.float32), mode="valid"),
        "alpha": Link(np.ones((3, 3, 1, 1), np.float32), alpha=np.nan),
        "b has shape": Link(np.ones((3, 3, 1, 1), np.float32), np.ones(2, np.float32)),
    }
    for words, link in wrong.items():
        with pytest.raises(oocdnn.InvalidProblem, match=f"^link 1 of a chain: .*{words}"):
            oocdnn.conv_chain(x, [Link(np.ones((3, 3, 1, 1), np.float32)), link])
    with pytest.raises(oocdnn.InvalidDtype, match="link 0 of a chain: w has elements"):
        oocdnn.Chain([Link(w.astype(np.float64))])(x)
    for takes in (oocdnn.Chain, lambda links: oocdnn.conv_chain(x, links)):
        with pytest.raises(oocdnn.InvalidProblem, match=r"write \[link\]"):
            takes(Link(w))
    with pytest.raises(oocdnn.InvalidProblem, match="out has shape"):
        oocdnn.Chain([Link(w)])(x, out=np.zeros((1, 2, 5, 5), np.float32))
    square = oocdnn.Chain([Link(np.ones((3, 3, 1, 1), np.float32))] * 2)
    with pytest.raises(oocdnn.InvalidProblem, match="overlaps"):
        square(x, out=x)


def test_planning_is_counted_and_can_be_bounded():
    rng = np.random.default_rng(11)
    links, x = vgg(4, rng), integers(rng, (6, 3, 64, 64), np.float32)
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    with oocdnn.Context(DEVICE, "256KiB", profile="none") as context:
        for planned in (True, False):
            context.conv_chain(x, links)
            assert (context.stats.prepared > 0) == planned
            assert context.stats.planning_seconds > 0
        usual = context.stats.tiles
    hurried = {"profile": "none", "planning_seconds": 1e-9}
    with oocdnn.Context(DEVICE, "256KiB", **hurried) as context:
        np.testing.assert_array_equal(context.conv_chain(x, links), wanted)
        assert context.stats.tiles > usual  # each link by itself


@pytest.mark.parametrize("budget", ["64KiB", "256KiB"])
def test_progress_of_sections_is_one_sum(budget):
    rng = np.random.default_rng(12)
    links, x, seen = vgg(4, rng)[:6], integers(rng, (6, 3, 64, 64), np.float32), []
    with oocdnn.Context(DEVICE, budget, profile="none") as context:
        z = context.conv_chain(x, links, progress=lambda *now: seen.append(now))
        assert context.stats.bytes_d2h > z.nbytes
        tiles = context.stats.tiles
    done = [now[0] for now in seen]
    assert {now[1] for now in seen} == {tiles}
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, tiles)


def test_a_chain_can_be_interrupted():
    links, x = vgg(1, np.random.default_rng(4))[:4], np.ones((4, 3, 16, 16), np.float32)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with oocdnn.Context(DEVICE, "1MiB") as context:
        with pytest.raises(KeyboardInterrupt):
            context.conv_chain(x, links, progress=stop)
        seen = []
        context.conv_chain(x, links, progress=lambda done, total: seen.append((done, total)))
        assert seen[-1][0] == seen[-1][1]
        assert all(a[0] <= b[0] for a, b in itertools.pairwise(seen))
