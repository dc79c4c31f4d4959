"""The gradients of chains: exactly what a call for each link gives, over the wire once, and within
the budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from counted import Counted
from engine.cases import DEVICE, DTYPES, lay_out
from engine.test_chain_calls import integers, moves, pools
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn
from oocdnn import Link

CHECKED = {"wrap": "check"} if DEVICE == "cpu" else {}
EXAMPLES = 120 if DEVICE == "cpu" else 25
ENGINES = (None, "direct", "reference") if DEVICE == "cpu" else (None,)


def sparse(rng, shape, dtype):
    """A filter with two numbers for each output, through which values grow little: sums stay
    exact through several links, forward and backward."""
    w = np.zeros(shape, dtype)
    flat = w.reshape(shape[0], -1)
    for row in flat:
        row[rng.integers(0, row.size, 2)] = rng.choice([-1, 1], 2)
    return w


@st.composite
def trained(draw):
    """x, dz, links that go together, and what is needed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    name = draw(st.sampled_from(["f32", "f64", "bf16"]))
    rank, dtype = draw(st.integers(1, 3)), DTYPES[name]
    channels = draw(st.integers(1, 5))
    extent = [draw(st.integers(1, 7 if rank == 3 else 14)) for _ in range(rank)]
    x = integers(rng, (draw(st.integers(1, 7)), channels, *extent), dtype)
    links = []
    for _ in range(draw(st.integers(1, 5))):
        groups = draw(st.sampled_from([g for g in (1, channels) if channels % g == 0]))
        k = groups * draw(st.integers(1, 3 if groups < 3 else 1))
        taps, stride, gaps, pads, extent = draw(moves(extent))
        pool, after = draw(pools(extent))
        if pool is not None and pool.mode == "avg" and name != "f64":
            pool = None  # its shares take more and more bits
        extent = extent if pool is None else after
        links.append(
            Link(
                sparse(rng, (k, channels // groups, *taps), dtype),
                integers(rng, (k,), dtype) if draw(st.booleans()) else None,
                stride=stride,
                padding=pads,
                dilation=gaps,
                groups=groups,
                activation=draw(st.sampled_from([None, "relu", ("clipped_relu", 6.0)])),
                pool=pool,
                mode=draw(st.sampled_from(["cross_correlation", "convolution"])),
            )
        )
        channels = k
    layout = draw(st.sampled_from(["channels_first", "channels_last"]))
    dz = integers(rng, (x.shape[0], channels, *extent), dtype)
    some = [("dw", i) for i in range(len(links))]
    some += [("db", i) for i, link in enumerate(links) if link.b is not None]
    needs = draw(st.one_of(st.just(("dx", "dw", "db")), st.sets(st.sampled_from(["dx", *some]))))
    return lay_out(x, layout), lay_out(dz, layout), links, tuple(needs) or ("dx",)


def link_by_link(context, dz, x, links):
    """dx, and by link dw and db."""
    passed, saved = [x], []
    for link in links:
        fields = {name: value for name, value in vars(link).items() if name not in ("w", "b")}
        z, bits = context.conv_bias_act_pool(
            passed[-1], link.w, link.b, save_for_backward=True, **fields
        )
        passed.append(z)
        saved.append(bits)
    dw, db = [], []
    for i in reversed(range(len(links))):
        dz, *own = context.conv_bias_act_pool_backward(dz, saved[i], passed[i], links[i].w)
        dw.insert(0, own[0])
        db.insert(0, own[1])
    return dz, dw, db


def equal(made, wanted):
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made.astype(np.float64), wanted.astype(np.float64))


def check_gradients(made, wanted, links, needs):
    """That what is needed is there and right, and nothing else."""
    dx, dw, db = wanted
    assert (made.dx is not None) == ("dx" in needs)
    if made.dx is not None:
        equal(made.dx, dx)
    for i, link in enumerate(links):
        for name, mine, right in (("dw", made.dw[i], dw[i]), ("db", made.db[i], db[i])):
            asked = name in needs or (name, i) in needs
            there = asked and (name == "dw" or link.b is not None)
            assert (mine is not None) == there
            if there:
                equal(mine, right)


def arrays_of(made):
    return [one for one in (made.dx, *made.dw, *made.db) if one is not None]


def bytes_in(x, dz, links):
    own = [array for link in links for array in (link.w, link.b) if array is not None]
    return sum(array.nbytes for array in (x, dz, *own))


def pads_beyond_its_reach(link):
    taps = zip(link.w.shape[2:], link.dilation, link.padding, strict=True)
    return any(max(pads) > (n - 1) * gap for n, gap, pads in taps)


def run(budget, engine, dz, x, links, needs):
    """What is needed, the call's stats and the checker's reports."""
    options = {"profile": "none", "engine": engine, **CHECKED}
    with oocdnn.Context(DEVICE, budget, **options) as mine:
        made = mine.conv_chain_backward(dz, x, links, needs=needs)
        return made, mine.stats, mine.check_reports()


def test_the_gradients_are_those_of_a_call_for_each_link():
    """By tiles of the batch, whatever is needed, and within the budget that a refusal names."""
    cut, counted = [], Counted()
    with oocdnn.Context(DEVICE, "64MiB") as large:

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            case=trained(),
            budget=st.sampled_from(["64MiB", "32KiB", "16KiB", "8KiB"]),
            engine=st.sampled_from(ENGINES),
        )
        def check(case, budget, engine):
            counted.begin()
            x, dz, links, needs = case
            wanted = link_by_link(large, dz, x, links)
            try:
                made, stats, reports = run(budget, engine, dz, x, links, needs)
            except oocdnn.Unsupported:  # dx and db are not computed together then
                assert any(map(pads_beyond_its_reach, links))
                return
            except oocdnn.OutOfMemory as refused:
                assert budget != "64MiB"
                made, stats, reports = run(refused.least, engine, dz, x, links, needs)
            check_gradients(made, wanted, links, needs)
            assert reports == []
            assert stats.peak_device_bytes <= stats.budget_bytes
            assert stats.bytes_d2h == sum(array.nbytes for array in arrays_of(made))
            assert stats.bytes_h2d <= bytes_in(x, dz, links)
            cut.append(stats.tiles > 1)
            counted.done()

        check()
    counted.need(0.5)
    assert sum(cut) > 5 or EXAMPLES < 100


def small(rng, n=12):
    """A chain of five links, x and dz."""
    sizes = [(8, 3), (8, 8), (16, 8), (16, 16), (8, 16)]
    pool = [None, 2, None, oocdnn.Pool("max", 3, 2, 1), None]
    links = [
        Link(sparse(rng, (k, c, 3, 3), np.float32), integers(rng, (k,), np.float32),
             padding=1, activation="relu", pool=p)
        for (k, c), p in zip(sizes, pool, strict=True)
    ]  # fmt: skip
    x = integers(rng, (n, 3, 32, 32), np.float32)
    return x, integers(rng, (n, 8, 8, 8), np.float32), links


@pytest.mark.parametrize("budget", ["64MiB", "1MiB", "700KiB", "500KiB"])
def test_every_byte_crosses_once(budget):
    """x, dz, w and b in; dx, dw and db out; and nothing of what lies between, whatever is cut."""
    x, dz, links = small(np.random.default_rng(0))
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, dz, x, links)
    with oocdnn.Context(DEVICE, budget, profile="none", **CHECKED) as context:
        made = context.conv_chain_backward(dz, x, links)
        stats = context.stats
        check_gradients(made, wanted, links, ("dx", "dw", "db"))
        assert stats.bytes_h2d == bytes_in(x, dz, links)
        assert stats.bytes_d2h == sum(array.nbytes for array in arrays_of(made))
        assert stats.peak_device_bytes <= stats.budget_bytes
        assert (stats.tiles > 1) == (budget != "64MiB")
        assert stats.predicted_seconds > 0
        check_gradients(context.conv_chain_backward(dz, x, links), wanted, links,
                        ("dx", "dw", "db"))  # fmt: skip
        assert (context.stats.prepared, context.stats.device_allocations) == (0, 0)
        assert context.check_reports() == []


def test_the_price_is_that_of_the_work():
    """More than the links forward, and no more than a call for each of them and its gradients."""
    x, dz, links = small(np.random.default_rng(8))
    with oocdnn.Context(DEVICE, "1MiB", profile="none") as context:
        context.conv_chain(x, links)
        forward = context.stats.predicted_seconds
        context.conv_chain_backward(dz, x, links)
        gradients = context.stats.predicted_seconds
        alone = sum(predicted_of_calls(context, dz, x, links))
    assert forward < gradients < 1.05 * alone


def predicted_of_calls(context, dz, x, links):
    saved = []
    for link in links:
        fields = {name: value for name, value in vars(link).items() if name not in ("w", "b")}
        z, bits = context.conv_bias_act_pool(x, link.w, link.b, save_for_backward=True, **fields)
        saved.append((bits, x))
        x = z
        yield context.stats.predicted_seconds
    for link, (bits, read) in zip(reversed(links), reversed(saved), strict=True):
        dz, *_ = context.conv_bias_act_pool_backward(dz, bits, read, link.w)
        yield context.stats.predicted_seconds


def test_what_no_gradient_needs_is_neither_read_nor_computed():
    """For the last filter alone the gradients of all others are left out, and for the last bias of
    a link with nothing behind it x and w too."""
    x, dz, links = small(np.random.default_rng(1))
    plain = [*links[:-1], Link(links[-1].w, links[-1].b, padding=1)]
    with oocdnn.Context(DEVICE, "64MiB") as context:
        wanted = link_by_link(context, dz, x, plain)
        made = context.conv_chain_backward(dz, x, plain, needs=[("dw", 4)])
        check_gradients(made, wanted, plain, [("dw", 4)])
        assert context.stats.bytes_h2d == bytes_in(x, dz, plain[:-1])
        made = context.conv_chain_backward(dz, x, plain, needs=[("db", 4)])
        check_gradients(made, wanted, plain, [("db", 4)])
        assert context.stats.bytes_h2d == dz.nbytes


def test_smooth_activations():
    """Their slopes are saved and read on the device."""
    x, dz, links = small(np.random.default_rng(2))
    soft = [
        Link(link.w, link.b, padding=1, activation=name, pool=link.pool)
        for link, name in zip(links, itertools.cycle(["sigmoid", "tanh", "swish"]), strict=False)
    ]
    with oocdnn.Context(DEVICE, "64MiB") as large:
        dx, dw, db = link_by_link(large, dz, x, soft)
    with oocdnn.Context(DEVICE, "1MiB", profile="none", **CHECKED) as context:
        made = context.conv_chain_backward(dz, x, soft)
        assert context.stats.tiles > 1
        assert context.check_reports() == []
    for mine, right in zip(arrays_of(made), (dx, *dw, *db), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4)


def test_a_sample_that_does_not_fit():
    """The error says which budget works, and that one does."""
    x, dz, links = small(np.random.default_rng(3))
    with (
        oocdnn.Context(DEVICE, "64KiB", profile="none") as context,
        pytest.raises(oocdnn.OutOfMemory, match="link by link") as raised,
    ):
        context.conv_chain_backward(dz, x, links)
    with oocdnn.Context(DEVICE, raised.value.least, profile="none") as context:
        context.conv_chain_backward(dz, x, links)
        assert context.stats.tiles == len(x)


def test_memory_of_every_kind(tmp_path):
    x, dz, links = small(np.random.default_rng(4))
    file = np.memmap(tmp_path / "x", np.float32, "w+", shape=x.shape)
    file[:] = x
    pinned = oocdnn.empty(dz.shape, np.float32, pinned=True)
    pinned[:] = dz
    with oocdnn.Context(DEVICE, "1MiB") as context:
        wanted = link_by_link(context, dz, x, links)
        made = context.conv_chain_backward(pinned, file, links)
    check_gradients(made, wanted, links, ("dx", "dw", "db"))


def test_an_empty_batch():
    x, dz, links = small(np.random.default_rng(5), n=0)
    with oocdnn.Context(DEVICE, "1MiB") as context:
        made = context.conv_chain_backward(dz, x, links)
    assert made.dx.shape == x.shape
    assert all(not one.any() for one in (*made.dw, *made.db))


def test_it_can_be_interrupted():
    x, dz, links = small(np.random.default_rng(6))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with oocdnn.Context(DEVICE, "1MiB", **CHECKED) as context:
        wanted = link_by_link(context, dz, x, links)
        with pytest.raises(KeyboardInterrupt):
            context.conv_chain_backward(dz, x, links, progress=stop)
        made = context.conv_chain_backward(dz, x, links)
        assert context.check_reports() == []
    check_gradients(made, wanted, links, ("dx", "dw", "db"))


def test_what_is_refused():
    x, dz, links = small(np.random.default_rng(7))
    ones = np.ones(8, np.float32)
    refused = {
        "alpha": Link(links[-1].w, alpha=2.0, padding=1),
        "scale": Link(links[-1].w, scale=ones, padding=1),
        "residual": Link(links[-1].w, residual=np.zeros_like(dz), padding=1),
    }
    with oocdnn.Context(DEVICE, "64MiB") as context:
        for words, link in refused.items():
            with pytest.raises(oocdnn.Unsupported, match=words):
                context.conv_chain_backward(dz, x, [*links[:-1], link])
        for needs, words in (
            ((), "empty"),
            ("dx", "pass a tuple"),
            (("dy",), "'dy'"),
            ((("dw", 5),), "single link"),
        ):
            with pytest.raises(oocdnn.InvalidProblem, match=words):
                context.conv_chain_backward(dz, x, links, needs=needs)
        with pytest.raises(oocdnn.InvalidProblem, match="has no b"):
            context.conv_chain_backward(dz, x, [*links[:-1], Link(links[-1].w, padding=1)],
                                        needs=[("db", 4)])  # fmt: skip
        with pytest.raises(oocdnn.InvalidProblem, match="dz has shape"):
            context.conv_chain_backward(dz[:, :4], x, links)
    with (
        oocdnn.Context(DEVICE, "64MiB", reproducible=True) as context,
        pytest.raises(oocdnn.Unsupported, match="reproducible"),
    ):
        context.conv_chain_backward(dz, x, links)
