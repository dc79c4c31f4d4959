"""One call on several devices, beside each device alone and a context on each by hand.

    oocdnn bench study devices --devices cuda:0,cuda:1 --out result.json

All three directions of a 3x3 convolution of 64 channels, from and to pinned memory. By hand the
batch is cut into equal parts, each of which a thread runs on a context of its own; of filter
gradients the parts are not added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import click
import numpy as np

import oocdnn
from oocdnn.bench.studies.study import Run, budget, images, study

CHANNELS = 64
SETTLING = 20  # calls until shares no longer follow the times of earlier calls
DIRECTIONS = ("fwd", "bwd_data", "bwd_filter")


@dataclass
class Compared:
    """Medians in seconds. `bytes_moved`: in and out, of the shared call."""

    direction: str
    data_bytes: int
    alone: list[float]
    by_hand: float
    shared: float
    bytes_moved: int
    tiles: int
    engine: str

    @property
    def times_rates(self) -> float:
        """The shared call's time, in what all devices together would take at the speed of each
        alone."""
        return self.shared * sum(1 / seconds for seconds in self.alone)

    def line(self) -> str:
        each = ", ".join(f"{seconds:.4f}" for seconds in self.alone)
        return (
            f"{self.direction}: alone {each} s; by hand {self.by_hand:.4f} s; shared "
            f"{self.shared:.4f} s, {min(self.alone) / self.shared:.3f} times as fast as the best "
            f"alone, {self.times_rates:.3f} of all rates, "
            f"{self.bytes_moved / self.shared / 1e9:.1f} GB/s"
        )


class Bench:
    """The arrays, and the calls on a range of the samples."""

    def __init__(self, images: int, size: int) -> None:
        shape = (images, CHANNELS, size, size)
        self.x, self.y = (oocdnn.empty(shape, np.float32) for _ in range(2))
        self.x[...] = self.y[...] = 1
        self.w = np.ones((CHANNELS, CHANNELS, 3, 3), np.float32)

    @cached_property
    def dx(self) -> Any:
        return oocdnn.empty(self.x.shape, np.float32)

    def run(self, context: oocdnn.Context, direction: str, samples: slice = slice(None)) -> None:
        x, y = self.x[samples], self.y[samples]
        if direction == "fwd":
            context.conv2d(x, self.w, padding=1, out=y)
        elif direction == "bwd_data":
            dx = self.dx[samples]
            context.conv_backward_data(y, self.w, dx.shape, padding=1, out=dx)
        else:
            context.conv_backward_filter(x, y, self.w.shape, padding=1)


def _at_once(calls: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(calls)) as threads:
        for done in [threads.submit(call) for call in calls]:
            done.result()


class Comparison:
    """The contexts: one of all devices, and one of each."""

    def __init__(self, stack: ExitStack, names: Sequence[str], count: int, **how: Any) -> None:
        self.shared = stack.enter_context(oocdnn.Context(devices=names, **how))
        self.alone = [stack.enter_context(oocdnn.Context(name, **how)) for name in names]
        ends = [number * count // len(names) for number in range(len(names) + 1)]
        self.parts = [slice(*part) for part in pairwise(ends)]

    def compare(
        self, bench: Bench, direction: str, seconds: Callable[[Callable[[], None]], float]
    ) -> Compared:
        whole = slice(None)

        def on(context: oocdnn.Context, samples: slice = whole) -> Callable[[], None]:
            return lambda: bench.run(context, direction, samples)

        by_hand = [on(*pair) for pair in zip(self.alone, self.parts, strict=True)]
        alone = [seconds(on(context)) for context in self.alone]
        together, shared = seconds(lambda: _at_once(by_hand)), seconds(on(self.shared))
        stats = self.shared.stats
        return Compared(
            direction=direction,
            data_bytes=bench.x.nbytes + bench.y.nbytes,
            alone=alone,
            by_hand=together,
            shared=shared,
            bytes_moved=stats.bytes_h2d + stats.bytes_d2h,
            tiles=stats.tiles,
            engine=stats.engine,
        )


@study(
    "devices",
    click.option("--devices", default="cuda:0,cuda:1", show_default=True, help="With commas."),
    budget("8GiB"),
    images,
    click.option("--size", default=224, show_default=True, type=click.IntRange(min=3)),
    click.option("--math", default="tf32", show_default=True, type=click.Choice(["fp32", "tf32"])),
    repeats=5,
)
def command(run: Run, repeats: int, images: int, size: int, **given: str) -> None:
    def seconds(call: Callable[[], None]) -> float:
        for _ in range(SETTLING):
            call()
        return run.time(call, repeats).median

    names = given["devices"].split(",")
    how: dict[str, Any] = {"budget": given["budget"], "math": given["math"]}
    with ExitStack() as stack:
        comparison = Comparison(stack, names, images, **how)
        bench = Bench(images, size)
        done = {row["direction"] for row in run.rows()}
        for direction in run.left(DIRECTIONS, str, done):
            made = comparison.compare(bench, direction, seconds)
            run.keep(asdict(made) | {"times_rates": made.times_rates}, made.line())
