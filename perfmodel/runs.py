"""Calls of a problem on random data, timed."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._mapped import Array
from oocdnn._problem import parse, random_call


def pinned_arrays(seed: int) -> Callable[[tuple[int, ...], npt.DTypeLike], Array]:
    """Arrays in memory that the device reaches fast; a block of random numbers, repeated."""
    block = np.random.default_rng(seed).standard_normal(1 << 20, np.float32)

    def make(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        array = oocdnn.empty(shape, dtype)
        flat, numbers = array.reshape(-1), block.astype(dtype)
        for begin in range(0, flat.size, block.size):
            part = flat[begin : begin + block.size]
            part[...] = numbers[: part.size]
        return array

    return make


def timed(context: oocdnn.Context, call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median seconds of the core, and of the whole call."""
    core, whole = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        whole.append(time.perf_counter() - start)
        core.append(context.stats.seconds)
    return statistics.median(core), statistics.median(whole)


def compute_seconds(context: oocdnn.Context, problem: str, repeats: int) -> list[float]:
    """How long what computes was busy in each call, after one that is not counted."""
    call = random_call(parse(problem), context, pinned_arrays(0))
    call()
    found = []
    for _ in range(repeats):
        call()
        found.append(context.stats.compute_seconds)
    return found
