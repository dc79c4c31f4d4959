"""What Python does around a call of the core, right after another call and with cold caches.

    oocdnn bench study call-cost --out result.json

The core is not called: its place is taken by a look at the clock. Between cold calls a walk through
memory larger than the caches takes what Python needs out of them, as a long call of a device does.
The first call of a kind is looked at in full, later ones are like it; both are timed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy as np

import oocdnn
from oocdnn._core.native import NativeContext
from oocdnn.bench.studies.study import Run, study

WARM = 50
Call = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """Median microseconds before and after the core's part."""

    name: str
    hot: tuple[float, float]
    cold: tuple[float, float]


@contextmanager
def without_core() -> Iterator[list[float]]:
    """Calls end at the core, which leaves the time of the last one in the list."""
    reached, own = [0.0], NativeContext._run

    def note(self: NativeContext, c: Any) -> None:
        reached[0] = perf_counter()

    NativeContext._run = note  # type: ignore[method-assign]
    try:
        yield reached
    finally:
        NativeContext._run = own  # type: ignore[method-assign]


def calls() -> dict[str, Call]:
    """Of arrays large enough to be pinned when a GPU uses them."""
    x, w, b = (np.ones(shape, np.float32) for shape in ((8, 32, 64, 64), (32, 32, 3, 3), (32,)))
    y, dx, dw, db = np.empty_like(x), np.empty_like(x), np.empty_like(w), np.empty_like(b)

    def conv2d(**keywords: Any) -> Call:
        return lambda: oocdnn.conv2d(x, w, padding=1, out=y, **keywords)

    return {
        "conv2d": conv2d(),
        "conv2d, bias and relu": conv2d(b=b, activation="relu"),
        "conv2d, in full": conv2d(progress=lambda _done, _tiles: None),
        "conv_backward_data": lambda: oocdnn.conv_backward_data(y, w, x.shape, padding=1, out=dx),
        "conv_backward_filter": lambda: oocdnn.conv_backward_filter(
            x, y, w.shape, padding=1, out=dw
        ),
        "conv_backward_bias": lambda: oocdnn.conv_backward_bias(y, out=db),
        "conv_transpose2d": lambda: oocdnn.conv_transpose2d(x, w, padding=1, out=y),
    }


def timed(call: Call, reached: list[float], before: Call, repeats: int) -> tuple[float, float]:
    """Median microseconds until the core is reached, and from there on."""
    rows = []
    for _ in range(repeats):
        before()
        begin = perf_counter()
        call()
        end = perf_counter()
        rows.append((reached[0] - begin, end - reached[0]))
    first, last = zip(*rows, strict=True)
    return median(first) * 1e6, median(last) * 1e6


def costs(names: Iterable[str], device: str, walk_bytes: int, repeats: int) -> Iterator[Cost]:
    ballast = np.ones(walk_bytes // 8)

    def walk() -> None:
        np.add(ballast, 1.0, out=ballast)

    with oocdnn.Context(device), without_core() as reached:
        every = calls()
        for name in names:
            call = every[name]
            for _ in range(WARM):
                call()
            hot = timed(call, reached, lambda: None, 10 * repeats)
            yield Cost(name, hot, timed(call, reached, walk, repeats))


OPTIONS = (
    click.option("--device", default="cpu", show_default=True),
    click.option("--walk-mib", default=512, show_default=True, type=click.IntRange(min=1)),
)


@study("call-cost", *OPTIONS, repeats=40)
def command(run: Run, device: str, walk_mib: int, repeats: int) -> None:
    done = {row["name"] for row in run.rows()}
    run.say("microseconds before + after the core's part: hot, cold")
    for cost in costs(run.left(calls(), str, done), device, walk_mib << 20, repeats):
        sides = [f"{before:6.1f} + {after:4.1f}" for before, after in (cost.hot, cost.cold)]
        run.keep(asdict(cost), f"{cost.name:22}  {sides[0]}   {sides[1]}")
