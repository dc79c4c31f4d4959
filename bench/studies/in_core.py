"""Single tensors of many GiB with every operand on the GPU: ours within a small budget, and torch.

    oocdnn bench study in-core --out result.json

torch runs as it does by default (cuDNN's heuristics, NCHW); the two take turns, and each has the
GPU's memory for itself. `beyond` is the device memory that a call takes besides x, w and y, as the
driver sees it at its peak. Elements are small integers: a few boxes of both results are compared
with sums in float64, of which every element must be the same. `--pinned` adds a case whose x and y
lie in pinned host memory, against the floor of the wires.
"""

import math
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import click
import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import Pinned, as_numpy, bytes_of, dtype_of
from oocdnn.bench.gpu.wires import Gauge
from oocdnn.bench.layer_call import call_of
from oocdnn.bench.layers import ROLES, Layer, layer
from oocdnn.bench.studies.least import by_torch
from oocdnn.bench.studies.study import (
    Run,
    budget,
    busy_text,
    contains,
    device,
    engine,
    only,
    study,
)

CASES = (
    (layer("video, 5 frames", (1, 256, 5, 1090, 1922), 64, 3), "tf32"),
    (layer("volume 362x370x251", (1, 64, 362, 370, 251), 32, 3, padding=1), "fp16"),
    (layer("video, 24 frames", (1, 3, 24, 1008, 1792), 128, 3, padding=1), "bf16"),
    (layer("volume 512x512x384", (1, 64, 512, 512, 384), 64, 3, padding=1), "fp16"),
    (layer("image 4096", (1, 256, 4096, 4096), 256, 3, padding=1), "bf16"),
    (layer("image 8192", (1, 256, 8192, 8192), 256, 3, padding=1), "bf16"),
    (layer("2048 to 2048 at 1024", (1, 2048, 1024, 1024), 2048, 3, padding=1), "tf32"),
    (layer("image 16384", (1, 64, 16384, 16384), 64, 3, padding=1), "tf32"),
    (layer("image 12288", (1, 64, 12288, 12288), 64, 3, padding=1), "tf32"),
)
FROM_HOST = CASES[-1]
PINNED = f"{FROM_HOST[0].name}, pinned"
LONG = 3.0  # seconds of a call that is not repeated
LOOKED_AT = 12  # boxes between the ends
GIB = 1 << 30


@dataclass
class Box:
    """Where a result is looked at: a few rows of all channels."""

    begin: tuple[int, ...]
    end: tuple[int, ...]

    def of(self, y: torch.Tensor) -> torch.Tensor:
        spatial = (slice(b, e) for b, e in zip(self.begin, self.end, strict=True))
        return y[(slice(None), slice(None), *spatial)]


def boxes(case: Layer, count: int, seed: int = 1) -> list[Box]:
    """The two ends and random places between."""
    chance, longest = random.Random(seed), [2] * (case.rank - 1) + [5]
    sizes = [min(a, b) for a, b in zip(longest, case.outputs, strict=True)]
    last = [out - size for out, size in zip(case.outputs, sizes, strict=True)]
    places = [[0] * case.rank, last]
    places += [[chance.randint(0, end) for end in last] for _ in range(count)]
    return [Box(tuple(at), tuple(a + s for a, s in zip(at, sizes, strict=True))) for at in places]


def expected(case: Layer, x: torch.Tensor, w: torch.Tensor, box: Box) -> torch.Tensor:
    """The exact sums, from the part of x that they read, in the type of the elements."""
    index, pads = [slice(None), slice(None)], list[int]()
    for axis in range(case.rank):
        reach = case.dilation[axis] * (case.taps[axis] - 1) + 1
        begin = box.begin[axis] * case.stride[axis] - case.padding[axis]
        end = (box.end[axis] - 1) * case.stride[axis] - case.padding[axis] + reach
        low, high = max(begin, 0), min(end, case.extents[axis])
        index.append(slice(low, high))
        pads = [low - begin, end - high, *pads]
    part = torch.nn.functional.pad(x[tuple(index)].double().cpu(), pads)
    forward = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[case.rank]
    weights = w.double().cpu()
    sums = forward(part, weights, None, case.stride, 0, case.dilation, case.groups)
    return sums.to(x.dtype)


def differing(y: torch.Tensor, wanted: Sequence[tuple[Box, torch.Tensor]]) -> int:
    return sum(int((box.of(y).cpu() != sums).sum()) for box, sums in wanted)


@dataclass
class Ran:
    """What one of the two took. Seconds on the GPU; `first`: until the first call had ended."""

    seconds: float = math.nan
    first: float = 0.0
    beyond: int = 0
    wrong: int = 0
    error: str = ""


@dataclass
class Measured:
    case: str
    math: str
    problem: str
    budget: int
    bytes: dict[str, int]
    flops: int
    torch: Ran = field(default_factory=Ran)
    ours: Ran = field(default_factory=Ran)
    stats: dict[str, Any] = field(default_factory=dict)
    plan: str = ""
    floors: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.ours.seconds / self.torch.seconds


Wanted = Sequence[tuple[Box, torch.Tensor]]


class Bench:
    """What all cases share."""

    def __init__(
        self, run: Run, card: Card, device: str, context: oocdnn.Context, repeats: int
    ) -> None:
        self._run, self._card, self._device = run, card, device
        self._context, self._repeats = context, repeats

    def measure(self, case: Layer, kind: str, with_torch: bool) -> Measured:
        torch.backends.cudnn.allow_tf32 = True
        dtype = dtype_of(kind)
        x, w = (
            self._card.integers(case.shape(operand), dtype, seed)
            for seed, operand in enumerate(ROLES["fwd"][:2])
        )
        self._card.give_back()
        wanted = wanted_of(case, x, w)
        sizes = {str(o): math.prod(case.shape(o)) * dtype.itemsize for o in ROLES["fwd"]}
        one = _measured(case.name, case, kind, sizes)
        if with_torch:
            one.torch = self._torch(case, x, w, wanted)
        one.ours, one.stats = self._ours(case, (x, w), kind, wanted)
        one.budget = int(one.stats.get("budget_bytes", 0))
        del x, w
        self._card.give_back()
        return one

    def _torch(self, case: Layer, x: torch.Tensor, w: torch.Tensor, wanted: Wanted) -> Ran:
        ran, call = Ran(), by_torch(case, "fwd")
        y_bytes = math.prod(case.shape("y")) * x.element_size()
        try:
            y, ran.first, taken = self._card.first_call(lambda: call(x, w))
            ran.seconds, ran.beyond = ran.first, taken - y_bytes
            ran.wrong = differing(y, wanted)
            del y
            self._card.give_back()
            if ran.first <= LONG:
                ran.seconds = self._card.best(lambda: call(x, w), self._repeats)
        except RuntimeError as error:
            ran.error = str(error).splitlines()[0]
        self._card.give_back()
        return ran

    def _ours(
        self, case: Layer, inputs: Sequence[torch.Tensor], kind: str, wanted: Wanted
    ) -> tuple[Ran, dict[str, Any]]:
        ran, stats = Ran(), dict[str, Any]()
        x, w = inputs
        y = torch.full(case.shape("y"), math.nan, dtype=x.dtype, device=x.device)
        self._card.synchronize()
        how = {"math": ARITHMETIC[kind].math}
        call = call_of(self._context, case, "fwd", (x, w), y, **how)
        try:
            _, ran.first, ran.beyond = self._card.first_call(call)
            ran.seconds = self._card.best(call, self._repeats)
            stats = asdict(self._context.stats)
            ran.wrong = differing(y, wanted)
        except (RuntimeError, ValueError, MemoryError) as error:
            ran.error = str(error)
        self._context.release()
        return ran, stats

    def measure_pinned(self, gauge: Gauge, least: float) -> Measured:
        """The last case from and to pinned host memory, with a budget of 2 GiB. `least`: seconds of
        it in core."""
        case, kind = FROM_HOST
        pinned = Pinned()
        x, w, y = (
            pinned.tensor(operand, case.shape(operand), dtype_of(kind)) for operand in ROLES["fwd"]
        )
        for seed, tensor in enumerate((x, w)):
            self._card.fill(tensor, seed)
        self._card.give_back()
        wanted, wires = wanted_of(case, x, w), gauge.rates(bytes_of(x), bytes_of(y))
        one = _measured(PINNED, case, kind, {"x": x.nbytes, "w": w.nbytes, "y": y.nbytes})
        one.budget = 2 * GIB
        one.floors = {**wires.floors(x.nbytes + w.nbytes, y.nbytes), "arithmetic": least}
        with oocdnn.Context(self._device, one.budget) as context:
            arrays, how = (as_numpy(x), as_numpy(w)), {"math": ARITHMETIC[kind].math}
            call = call_of(context, case, "fwd", arrays, as_numpy(y), **how)
            times = self._run.time(call, self._repeats)
            one.stats = asdict(context.stats)
        one.ours = Ran(times.median, times.cold, wrong=differing(y, wanted))
        return one


def wanted_of(case: Layer, x: torch.Tensor, w: torch.Tensor) -> Wanted:
    return [(box, expected(case, x, w, box)) for box in boxes(case, LOOKED_AT)]


def _measured(name: str, case: Layer, kind: str, sizes: dict[str, int]) -> Measured:
    problem = f"{case.problem('fwd')} {ARITHMETIC[kind].word}"
    return Measured(name, kind, problem, budget=0, bytes=sizes, flops=case.flops)


def line(one: Measured) -> str:
    text = f"{one.case:<22} {one.math} "
    if one.floors:
        limit, floor = max(one.floors.items(), key=lambda item: item[1])
        return text + (
            f"{one.ours.seconds * 1e3:9.1f} ms {one.ours.seconds / floor:6.3f} x {limit} "
            f"{floor * 1e3:.1f} ms, first {one.ours.first:.2f} s, {one.stats.get('tiles')} tiles, "
            f"{one.stats.get('engine')}{f', {one.ours.wrong} DIFFER' if one.ours.wrong else ''}"
        )
    for label, ran in (("torch", one.torch), ("ours", one.ours)):
        text += (
            f"{label} {ran.seconds * 1e3:9.2f} ms (first {ran.first:5.2f} s, beyond "
            f"{ran.beyond / GIB:6.3f} GiB{f', {ran.wrong} DIFFER' if ran.wrong else ''}"
            f"{f', {ran.error}' if ran.error else ''}) "
        )
    peak = one.stats.get("peak_device_bytes", 0) / GIB
    return text + (
        f"ratio {one.ratio:.3f}, arena {peak:.3f} GiB, {one.stats.get('tiles')} tiles, "
        f"busy {busy_text(one.stats)}, {one.flops / one.ours.seconds / 1e12:.0f} TFLOP/s, "
        f"{one.stats.get('engine')}"
    )


def row_of(fields: Mapping[str, Any]) -> Measured:
    """From a journal."""
    ran = {who: Ran(**fields[who]) for who in ("torch", "ours")}
    return Measured(**{**fields, **ran})


pinned = click.option("--pinned", is_flag=True, help="The last case from pinned memory too.")
with_torch = click.option("--torch/--no-torch", "with_torch", default=True, help="Whether it runs.")


@study("in-core", device, budget("1GiB"), engine, only, pinned, with_torch, repeats=3, on="torch")
def command(
    run: Run, card: Card, device: str, budget: str, engine: str | None, only: Sequence[str],
    pinned: bool, with_torch: bool, repeats: int,
) -> None:  # fmt: skip
    measured = [row_of(row) for row in run.rows()]
    done = {one.case for one in measured}

    def keep(one: Measured) -> None:
        measured.append(one)
        run.keep(asdict(one), line(one))

    with ExitStack() as made:
        # Streams that are made last in a process full of them may not run beside each other.
        gauge = made.enter_context(Gauge(card.ordinal)) if pinned else None
        with oocdnn.Context(device, budget, engine=engine) as context:
            bench = Bench(run, card, device, context, repeats)
            chosen = (case for case in CASES if contains(case[0].name, only))
            for case, kind in run.left(chosen, lambda one: one[0].name, done):
                with run.reported(case.name):
                    keep(bench.measure(case, kind, with_torch))
        if gauge is not None and PINNED not in done:
            times = [one.ours.seconds for one in measured if one.case == FROM_HOST[0].name]
            with run.reported(PINNED):
                keep(bench.measure_pinned(gauge, min(times, default=0.0)))
