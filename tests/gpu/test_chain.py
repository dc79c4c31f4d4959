"""Chains whose operands lie anywhere: x, z and each filter on the GPU or in host memory.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import oracle
import pytest
from gpu.test_operands import TIERS, host, places
from python.support import assert_equal, integers

import oocdnn
from oocdnn import Link, Pool

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import DeviceArray


@contextmanager
def within(budget, **more):
    try:
        context = oocdnn.Context("cuda", budget, wrap="check", **more)
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with context:
        yield context
        assert context.check_reports() == []


@pytest.fixture(params=["256KiB", "4MiB"])
def ctx(request):
    with within(request.param) as context:
        yield context


def reference(x, parameters):
    for w, b in parameters:
        x = oracle.finish(oracle.forward(x, w, padding=1), bias=b, activation="relu")
    return oracle.pool(x, oracle.Pool("max", (2, 2), (2, 2), ((0, 0), (0, 0))))[0]


def links_of(parameters):
    pools = [None] * (len(parameters) - 1) + [2]
    return [
        Link(w, b, padding=1, activation="relu", pool=pool)
        for (w, b), pool in zip(parameters, pools, strict=True)
    ]


def parameters_of(channels):
    return [
        (integers((k, c, 3, 3), i, largest=1), integers((k,), i))
        for i, (c, k) in enumerate(itertools.pairwise(channels))
    ]


@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, repeat=2)), ids="-".join)
def test_chains_from_any_place(ctx, tmp_path, tiers):
    x, parameters = integers((3, 4, 30, 41)), parameters_of((4, 8, 5, 6))
    z = reference(x, parameters)
    blank = np.full(z.shape, np.nan, np.float32)
    placed = places(tmp_path, "x")[tiers[0]](x), places(tmp_path, "z")[tiers[1]](blank)
    ctx.conv_chain(placed[0], links_of(parameters), out=placed[1])
    assert_equal(host(placed[1]), z)
    if ctx.stats.budget_bytes > 1 << 20:  # all links at once
        assert ctx.stats.bytes_d2h == (0 if tiers[1] == "device" else z.size * 4)


@pytest.mark.parametrize("here", [(True, True), (True, False), (False, True)])
def test_chains_in_core(ctx, here):
    """With every operand on the GPU nothing crosses; a filter may also lie elsewhere."""
    x, parameters = integers((3, 4, 30, 41)), parameters_of((4, 8, 6))
    z = reference(x, parameters)
    out = DeviceArray(np.full(z.shape, np.nan, np.float32))
    links = links_of(
        [
            (DeviceArray(w), DeviceArray(b)) if there else (w, b)
            for (w, b), there in zip(parameters, here, strict=True)
        ]
    )
    for _ in range(2):
        ctx.conv_chain(DeviceArray(x), links, out=out)
    assert_equal(host(out), z)
    if all(here) and ctx.stats.budget_bytes > 1 << 20:
        assert (ctx.stats.bytes_h2d, ctx.stats.bytes_d2h) == (0, 0)


def block_of(parameters):
    """A convolution, and blocks of two that add what was before; the last one adds x too."""
    added = [None, None, 0, None, 2, "x"]
    return [
        Link(w, b, padding=1, activation=("clipped_relu", 8.0), residual=source)
        for (w, b), source in zip(parameters, added, strict=True)
    ]


def reference_of_blocks(x, links):
    made = [x]
    for link in links:
        source = link.residual
        residual = None if source is None else made[0 if source == "x" else source + 1]
        y = oracle.forward(made[-1], host(link.w), padding=1)
        after = {"activation": "clip", "parameter": 8.0}
        made.append(oracle.finish(y, bias=host(link.b), residual=residual, **after))
    return made[-1]


@pytest.mark.parametrize("budget", ["128KiB", "256KiB", "1MiB", "4MiB"])
@pytest.mark.parametrize(
    "tiers", [("pageable", "pinned"), ("device", "device"), ("device", "pageable")]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_is_added_stays_on_the_gpu(tmp_path, budget, tiers, dtype):
    """Samples and pieces of them, x in the place of its tile or not."""
    x, parameters = integers((3, 6, 30, 41)), parameters_of((6, 6, 6, 6, 6, 6, 6))
    links = block_of([(w.astype(dtype), b.astype(dtype)) for w, b in parameters])
    z = reference_of_blocks(x, links)
    with within(budget, profile="none") as context:
        placed = places(tmp_path, "x")[tiers[0]](x.astype(dtype))
        out = places(tmp_path, "z")[tiers[1]](np.full(z.shape, np.nan, dtype))
        for _ in range(2):
            context.conv_chain(placed, links, out=out)
        stats = context.stats
    assert_equal(host(out), z.astype(dtype))
    if budget == "4MiB":  # all links at once
        own = sum(link.w.nbytes + link.b.nbytes for link in links)
        assert stats.bytes_d2h == (0 if tiers[1] == "device" else z.size * x.astype(dtype).itemsize)
        assert stats.bytes_h2d == own + (0 if tiers[0] == "device" else x.astype(dtype).nbytes)


def test_sections_in_core():
    """What sections leave in host memory is copied to and from it; where all links fit in tiles
    that are not small nothing crosses."""
    with within("32KiB"):
        pass  # there is a GPU
    x, parameters = integers((24, 4, 12, 12)), parameters_of((4, 8, 16, 16, 8, 6, 6, 6))
    z = reference(x, parameters)
    links = links_of([(DeviceArray(w), DeviceArray(b)) for w, b in parameters])
    crossed = []
    for kib in (32, 48, 64, 96, 128, 256, 512, 1024, 4096):
        out = DeviceArray(np.full(z.shape, np.nan, np.float32))
        with within(kib << 10, profile="none") as context:
            context.conv_chain(DeviceArray(x), links, out=out)
            stats = context.stats
        assert_equal(host(out), z)
        assert (stats.bytes_h2d > 0) == (stats.bytes_d2h > 0)
        crossed.append(stats.bytes_d2h > 0)
    assert crossed[0]
    assert not any(crossed[5:])


@pytest.mark.parametrize("budget", ["30KiB", "8MiB"])
@pytest.mark.parametrize("pools", [(None, None, 2, None), (2, None, Pool("avg", 2), None)])
def test_sums_that_engines_finish(budget, pools):
    """Channels by eights, in a 16-bit type; by samples and by rows, and link by link."""
    rng = np.random.default_rng(5)

    def some(*shape, most=1):
        return rng.integers(-most, most + 1, shape).astype(ml_dtypes.bfloat16)

    x = some(4, 8, 24, 24, most=2)
    links = [
        Link(some(8, 8, 3, 3), some(8, most=2), padding=1, activation="relu", pool=pool)
        for pool in pools
    ]
    with within(budget, profile="none") as context:
        z = context.conv_chain(x, links)
        assert context.stats.tiles > 1 or budget != "30KiB"
        wanted = x
        for link in links:
            wanted = context.conv_bias_act_pool(
                wanted, link.w, link.b, padding=1, activation="relu", pool=link.pool
            )
    assert_equal(z.astype(np.float32), wanted.astype(np.float32))
