"""How close convolutions of arrays in pinned host memory come to the floor of a GPU.

    oocdnn bench study floor --out result.json

The floor of a problem is the least time by wires and arithmetic, both measured in the same run:
max(a, in / B_in, out / B_out, (in + out) / B_both), every byte counted once, the rates those of the
memory that the operands lie in. `a` is the best time for the same arithmetic: our own tiles, and
where those take longer than the wires, every operand on the GPU too: torch in core, NCHW and
channels-last, with the engine that its own measurements choose (that it guesses, where the wires
take clearly longer even so), and our own whole, where none of torch's counts. Where torch computes
fp32 by Winograd or FFT, which is not the same arithmetic, its time is noted and not counted.
Elements are small integers, for which every engine that adds products gives the same bits as torch.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import Pinned, as_numpy, bytes_of, dtype_of
from oocdnn.bench.gpu.wires import Gauge
from oocdnn.bench.layer_call import call_of
from oocdnn.bench.layers import DIRECTIONS, GPU_LAYERS, ROLES, Direction, Layer
from oocdnn.bench.measure import Patience
from oocdnn.bench.studies.floor_row import Measured, line, note_floors, row_of, summary
from oocdnn.bench.studies.least import Least, by_torch
from oocdnn.bench.studies.study import (
    Run,
    budget,
    contains,
    device,
    engine,
    maths,
    only,
    study,
)

KINDS = ("fp32", "tf32", "fp32x3", "bf16")
ENOUGH = 0.2  # seconds of a case's calls, of which brief ones are repeated more often,
MOST_CALLS = 20  # but not more: right after the first call Python itself is still slow


class Bench:
    """What all cases share."""

    def __init__(self, run: Run, card: Card, context: oocdnn.Context, gauge: Gauge) -> None:
        self._run, self._card, self._context, self._gauge = run, card, context, gauge
        self._pinned = Pinned()

    def measure(self, case: Layer, direction: Direction, kind: str, repeats: int) -> Measured:
        began = time.perf_counter()
        word, math_name, _ = ARITHMETIC[kind]
        torch.backends.cudnn.allow_tf32 = kind == "tf32"
        *sources, target = (
            self._pinned.tensor(name, case.shape(name), dtype_of(kind)) for name in ROLES[direction]
        )
        here = [self._card.fill(tensor, seed) for seed, tensor in enumerate(sources)]
        target.fill_(math.nan)  # the last case's result may be what this one's should be
        source = max(sources, key=lambda tensor: tensor.nbytes)
        wires = self._gauge.rates(bytes_of(source), bytes_of(target), repeats=3)
        one = Measured(
            layer=case.name,
            direction=direction,
            math=kind,
            problem=f"{case.problem(direction)} {word}",
            bytes_in=sum(tensor.nbytes for tensor in sources),
            bytes_out=target.nbytes,
            flops=case.flops,
        )
        inputs, out = list(map(as_numpy, sources)), as_numpy(target)
        self._time(
            one, call_of(self._context, case, direction, inputs, out, math=math_name), repeats
        )
        wire = wires.seconds(one.bytes_in, one.bytes_out)
        if one.stats["compute_seconds"] > wire:
            least = Least(self._card, case, direction, kind, here)
            one.torch_seconds, one.own_seconds = least.seconds(self._context, wire)
        # Integers are exact in TF32, and its engines only add products.
        torch.backends.cudnn.allow_tf32 = True
        expected = by_torch(case, direction)(*here)
        one.wrong, one.difference = self._card.differing(target, expected)
        note_floors(one, wires)
        self._card.give_back()
        one.took = time.perf_counter() - began
        return one

    def _time(self, one: Measured, call: Callable[[], object], repeats: int) -> None:
        prepared = list[int]()

        def look() -> None:
            """At what the call before this one has prepared."""
            prepared.append(self._context.stats.prepared)

        patience = Patience(repeats, max(repeats, MOST_CALLS), 0.0, ENOUGH, strict=True)
        times = self._run.time(call, patience, look)
        look()
        one.first, one.seconds, one.dropped = times.cold, times.warm, times.dropped
        one.prepared = sum(prepared[2:])
        one.stats = asdict(self._context.stats)
        one.plan = self._context.plan(one.problem).explain()


def chosen(only: Sequence[str], maths: Sequence[str]) -> Iterator[tuple[Layer, Direction, str]]:
    for case in GPU_LAYERS:
        for direction in DIRECTIONS:
            for kind in maths:
                if contains(f"{case.name} {case.problem(direction)} {kind}", only):
                    yield case, direction, kind


def key(case: tuple[Layer, Direction, str]) -> tuple[str, str, str]:
    layer, direction, kind = case
    return layer.name, direction, kind


@study("floor", device, budget("2GiB"), engine, only, maths(KINDS), repeats=3, on="torch")
def command(
    run: Run, card: Card, device: str, budget: str, engine: str | None, only: Sequence[str],
    maths: Sequence[str], repeats: int,
) -> None:  # fmt: skip
    measured = [row_of(row) for row in run.rows()]
    done = {(one.layer, one.direction, one.math) for one in measured}
    with (
        Gauge(card.ordinal) as gauge,
        oocdnn.Context(device, budget, engine=engine) as context,
    ):
        wires, bench = gauge.rates(), Bench(run, card, context, gauge)
        run.note("wires", asdict(wires))
        run.say(wires.text)
        for case in run.left(chosen(only, maths or KINDS), key, done):
            with run.reported(" ".join(key(case))):
                measured.append(bench.measure(*case, repeats))
                run.note("summary", summary(measured))
                run.keep(asdict(measured[-1]), line(measured[-1]))
    for label, value in (summary(measured) if measured else {}).items():
        run.say(f"{label}: {value:.4g}")
