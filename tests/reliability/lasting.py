"""Rows 12, 24 and 25: nothing leaks, the budget holds, and warm calls take nothing new."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import oracle
from engine.cases import (
    DIRECTIONS,
    DTYPES,
    Case,
    RandomDraw,
    call,
    make_inputs,
    random_case,
)
from engine.cases import reference as reference_of

import oocdnn
from reliability.processes import alone, own_status, tally
from reliability.rows import Finding, Size, Tally

HEAP_BLOCK = 32  # bytes of the smallest block of the heap


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def settled_threads(most: int) -> int:
    """The number of threads once those that are ending are gone: OpenMP joins none of its own."""
    end = time.monotonic() + 5
    while threads() > most and time.monotonic() < end:
        time.sleep(0.01)
    return threads()


def create_run_destroy(_ready: Callable[[], None], count: int, warm: int) -> dict[str, float]:
    """Growth over `count` lives of a context, by a straight line through the memory in use."""
    x = np.ones((1, 4, 16, 16), np.float32)
    w = np.ones((4, 4, 3, 3), np.float32)
    expected = oracle.forward(x, w)
    at, memory = [], []
    others, before = threads(), (0, 0)
    for i in range(warm + count):
        if i == warm:
            before = descriptors(), settled_threads(others)
        with oocdnn.Context("cpu", 64 << 10, profile="none", threads=2) as ctx:
            y = ctx.conv2d(x, w)
        if i % 50 == 0:
            np.testing.assert_array_equal(y, expected)
        if i >= warm and (i - warm) % max(1, count // 100) == 0:
            gc.collect()  # what only waits for Python's collector is no leak
            at.append(i)
            memory.append(own_status("RssAnon"))
    slope = float(np.polyfit(at, memory, 1)[0]) if len(at) > 1 else 0.0
    return {
        "growth of memory, bytes": slope * count,
        "growth of descriptors": descriptors() - before[0],
        "growth of threads": settled_threads(before[1]) - before[1],
        "memory, bytes": memory[-1],
    }


def measure_leaks(size: Size) -> Finding:
    count, warm = size.of(20, 500, 10_000), size.of(5, 200, 1000)
    watched = alone(create_run_destroy, count, warm, limit=3000, size=size)
    if watched.error:
        return Finding(watched.error, False, [watched.error])
    seen = watched.value
    # One block lost in each life would show; a short run cannot tell it from pages that move.
    allowed = size.of(16 << 20, 1 << 20, count * HEAP_BLOCK // 2)
    most = {"growth of memory, bytes": allowed, "growth of descriptors": 0, "growth of threads": 0}
    failures = [f"{name}: {seen[name]:.0f}" for name in most if seen[name] > most[name]]
    figure = (
        f"{count} times create, run, destroy after {warm} to warm up: memory grows by "
        f"{seen['growth of memory, bytes'] / 1024:.0f} KiB ({seen['memory, bytes'] / 2**20:.0f} "
        f"MiB in use), descriptors by {seen['growth of descriptors']:.0f}, threads by "
        f"{seen['growth of threads']:.0f}"
    )
    return Finding(figure, not failures, failures, seen)


def medium_case(direction: str, seed: int) -> Case:
    """Some MiB of data."""
    draw = RandomDraw(np.random.default_rng((seed, 24)))
    case = random_case(draw, rank=2, small=False)
    return replace(
        case,
        direction=direction,
        dtype="f32",
        n=4,
        groups=draw.choice((1, 2)),
        k=draw.integer(4, 12),
        c=draw.integer(4, 12),
        extent=(draw.integer(60, 160), draw.integer(60, 160)),
    )


def cap_chunk(direction: str, seed: int) -> Tally:
    """One problem under budgets from 64 KiB to more than all of it."""
    case = medium_case(direction, seed)
    arrays = make_inputs(case)
    expected = reference_of(case, arrays).astype(DTYPES[case.dtype])
    done = Tally()
    budget = 64 << 10
    while budget < 4 * case.data_bytes:
        done.cases += 1
        where = f"seed {seed} budget {budget}: {case}"
        with oocdnn.Context("cpu", budget, wrap="check", profile="none", threads=1) as ctx:
            try:
                result = call(ctx, case, arrays)
            except oocdnn.OutOfMemory as error:
                done.count("refused")
                if not error.least > budget:
                    done.fail(f"{where}: {error}")
            else:
                peak = ctx.stats.peak_device_bytes
                done.at_least("most of a budget, in percent", -(-100 * peak // budget))
                if peak > budget or ctx.stats.budget_bytes != budget:
                    done.fail(f"{where}: peak {peak}")
                if not np.array_equal(result, expected):
                    done.fail(f"{where}: a wrong result")
        budget += budget // 2
    return done


def measure_cap(size: Size) -> Finding:
    seeds = size.of(1, 1, 8)
    directions = DIRECTIONS[:1] if size is Size.SMOKE else DIRECTIONS
    done = tally(cap_chunk, [(d, seed) for d in directions for seed in range(seeds)], size)
    figure = (
        f"{done.cases} runs of {len(directions) * seeds} problems from 64 KiB to all: "
        f"{len(done.failures)} above the budget or wrong, {done['refused']} refused with the "
        f"least that works, fullest {done['most of a budget, in percent']} %"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)


def measure_steady(size: Size) -> Finding:
    calls = size.of(10, 100, 1000)
    failures = []
    for direction in DIRECTIONS:
        case = replace(medium_case(direction, 1), n=1, extent=(40, 40))
        arrays = make_inputs(case)
        with oocdnn.Context("cpu", 128 << 10, profile="none", threads=1) as ctx:
            call(ctx, case, arrays)
            peak, taken, prepared = ctx.stats.peak_device_bytes, 0, 0
            for _ in range(calls // 4):
                call(ctx, case, arrays)
                taken += ctx.stats.device_allocations
                prepared += ctx.stats.prepared
            if taken or prepared or ctx.stats.peak_device_bytes != peak:
                failures.append(f"{case}: {taken} allocations, {prepared} prepared after warm-up")
    figure = (
        f"{calls // 4 * 4} warm calls in the four directions: {len(failures)} directions in which "
        "any allocates on the device or prepares anything"
    )
    return Finding(figure, not failures, failures)
