"""Calls of a problem on random data, timed."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._arrays.mapped import Array
from oocdnn.bench.gpu.clock import Stopwatch
from oocdnn.bench.gpu.memory import DeviceArray, Gpu
from oocdnn.bench.layers import WORDS
from oocdnn.bench.task import fill
from oocdnn.cli.problems import Make, parse, random_call


def pinned_arrays(seed: int) -> Make:
    """Arrays in memory that the device reaches fast; a block of random numbers, repeated."""
    block = np.random.default_rng(seed).standard_normal(1 << 20, np.float32)

    def make(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        array = oocdnn.empty(shape, dtype)
        fill(array, block)
        return array

    return make


class PinnedPool:
    """The same for one call after another, in memory that is kept: pinning takes long, and so does
    filling. The first array of a call is its result."""

    def __init__(self, seed: int) -> None:
        self._block = np.random.default_rng(seed).standard_normal(1 << 20, np.float32)
        self._pieces: dict[tuple[int, str], Array] = {}
        self._next = 0

    def begin(self) -> None:
        """The arrays of the last call are needed no more."""
        self._next = 0

    def __call__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        size, kind = int(np.prod(shape)), np.dtype(dtype)
        key = (self._next, kind.name if self._next else "")
        self._next += 1
        held = self._pieces.get(key)
        if held is None or held.nbytes < size * kind.itemsize:
            self._pieces.pop(key, None)
            del held
            held = self._pieces[key] = oocdnn.empty(size, kind)
            fill(held, self._block)
        return held.view(np.uint8)[: size * kind.itemsize].view(kind).reshape(shape)


def place(call: partial[Any], problem: str, gpu: Gpu) -> partial[Any]:
    """The call with those of its arrays on the GPU of which the problem string says so."""
    words = WORDS[parse(problem).direction]  # type: ignore[index]
    keywords, args = dict(call.keywords), list(call.args)
    on_device = [f"{word}@dev" in problem.split() for word in words]
    for number in range(2):
        if on_device[number]:
            args[number] = DeviceArray.like(gpu, args[number])
    if on_device[2]:
        keywords["out"] = DeviceArray.like(gpu, keywords["out"])
    return partial(call.func, *args, **keywords)


class Timer:
    """Times calls on a context: where all arrays are on the GPU by its clock, as such calls return
    before they are done, else as the core does."""

    def __init__(self, gpu: Gpu | None) -> None:
        self._watch = None if gpu is None else Stopwatch(gpu)

    def __call__(
        self, context: oocdnn.Context, call: Callable[[], Any], repeats: int, in_core: bool
    ) -> tuple[float, float]:
        """Median seconds of the call, and with what Python does."""
        if in_core and self._watch is not None:
            seconds = self._watch.median(call, repeats)
            return seconds, seconds
        return timed(context, call, repeats)


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
