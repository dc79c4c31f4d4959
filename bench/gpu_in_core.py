"""Single tensors of many GiB with every operand on the GPU: ours within a small budget, and torch.

    python -m oocdnn.bench.gpu_in_core --out result.json

torch runs as it does by default (cuDNN's heuristics, NCHW); the two take turns, and each has the
GPU's memory for itself. `beyond` is the device memory that a call takes besides x, w and y, as the
driver sees it at its peak. Elements are small integers: a few boxes of both results are compared
with sums in float64, of which every element must be the same. `--pinned` adds a case whose x and y
lie in pinned host memory, against the floor of the wires.
"""

import ctypes
import gc
import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import click
import torch

import oocdnn
from oocdnn.bench.busy import busy_text
from oocdnn.bench.cpu import call_of
from oocdnn.bench.gpu_floor import (
    Pinned,
    as_numpy,
    bytes_of,
    event_seconds,
    fill_on_gpu,
    in_core,
    provenance_on_gpu,
)
from oocdnn.bench.gpu_wires import Gauge
from oocdnn.bench.layers import ROLES, Layer, layer

# The type of the elements, the word in problem strings, and what `math=` says.
MATHS = {
    "tf32": (torch.float32, "f32/tf32", "tf32"),
    "fp16": (torch.float16, "f16", "fp32"),
    "bf16": (torch.bfloat16, "bf16", "fp32"),
}

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
Result = TypeVar("Result")
LONG = 3.0  # seconds of a call that is not repeated


class Watch:
    """The least memory that was free while it watched, by the driver."""

    def __init__(self) -> None:
        self.before = self.least = torch.cuda.mem_get_info()[0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.0005):
            self.look()

    def look(self) -> None:
        self.least = min(self.least, torch.cuda.mem_get_info()[0])

    @property
    def taken(self) -> int:
        return int(self.before - self.least)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.look()


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


def settle() -> None:
    """Gives back what nobody holds any more."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def first_call(work: Callable[[], Result]) -> tuple[Result, float, int]:
    """What a call returns, its seconds by the clock, and the device memory that it took."""
    torch.cuda.synchronize()
    with Watch() as watch:
        start = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return result, seconds, watch.taken


def run_torch(
    case: Layer, x: torch.Tensor, w: torch.Tensor, wanted: Sequence[tuple[Box, torch.Tensor]],
    repeats: int,
) -> Ran:  # fmt: skip
    ran, call = Ran(), in_core(case, "fwd")
    y_bytes = math.prod(case.shape("y")) * x.element_size()
    try:
        y, ran.first, taken = first_call(lambda: call(x, w))
        ran.seconds, ran.beyond = ran.first, taken - y_bytes
        ran.wrong = differing(y, wanted)
        del y
        settle()
        if ran.first <= LONG:
            ran.seconds = event_seconds(lambda: call(x, w), repeats)
    except RuntimeError as error:
        ran.error = str(error).splitlines()[0]
    settle()
    return ran


def run_ours(
    context: oocdnn.Context, case: Layer, inputs: Sequence[torch.Tensor], name: str,
    wanted: Sequence[tuple[Box, torch.Tensor]], repeats: int,
) -> tuple[Ran, dict[str, Any]]:  # fmt: skip
    ran, stats = Ran(), dict[str, Any]()
    x, w = inputs
    y = torch.full(case.shape("y"), math.nan, dtype=x.dtype, device=x.device)
    torch.cuda.synchronize()
    call = call_of(context, case, "fwd", (x, w), y, math=MATHS[name][2])
    try:
        _, ran.first, ran.beyond = first_call(call)
        ran.seconds = event_seconds(call, repeats)
        stats = asdict(context.stats)
        ran.wrong = differing(y, wanted)
    except (RuntimeError, ValueError, MemoryError) as error:
        ran.error = str(error)
    context.release()
    return ran, stats


def measure(
    context: oocdnn.Context, case: Layer, name: str, repeats: int, with_torch: bool
) -> Measured:
    dtype, word, _ = MATHS[name]
    torch.backends.cudnn.allow_tf32 = True
    x, w = (
        fill_on_gpu(torch.empty(case.shape(operand), dtype=dtype, device="cuda"), seed)
        for seed, operand in enumerate(ROLES["fwd"][:2])
    )
    settle()
    wanted = [(box, expected(case, x, w, box)) for box in boxes(case, 12)]
    one = Measured(
        case=case.name,
        math=name,
        problem=f"{case.problem('fwd')} {word}",
        budget=0,
        bytes={o: math.prod(case.shape(o)) * dtype.itemsize for o in ROLES["fwd"]},
        flops=case.flops,
    )
    if with_torch:
        one.torch = run_torch(case, x, w, wanted, repeats)
    one.ours, one.stats = run_ours(context, case, (x, w), name, wanted, repeats)
    one.budget = int(one.stats.get("budget_bytes", 0))
    del x, w
    settle()
    return one


def measure_pinned(device: str, repeats: int, gauge: Gauge, least: float) -> Measured:
    """The last case from and to pinned host memory, with a budget of 2 GiB. `least`: seconds of it
    in core."""
    case, name = FROM_HOST
    dtype, word, allowed = MATHS[name]
    pinned = Pinned()
    x, w, y = (pinned.tensor(operand, case.shape(operand), dtype) for operand in ROLES["fwd"])
    for seed, tensor in enumerate((x, w)):
        tensor.copy_(fill_on_gpu(torch.empty_like(tensor, device="cuda"), seed))
    settle()
    wanted = [(box, expected(case, x, w, box)) for box in boxes(case, 12)]
    wires = gauge.rates(bytes_of(x), bytes_of(y))
    one = Measured(
        case=f"{case.name}, pinned",
        math=name,
        problem=f"{case.problem('fwd')} {word}",
        budget=2 << 30,
        bytes={"x": x.nbytes, "w": w.nbytes, "y": y.nbytes},
        flops=case.flops,
        floors={**wires.floors(x.nbytes + w.nbytes, y.nbytes), "arithmetic": least},
    )
    seconds = list[float]()
    with oocdnn.Context(device, "2GiB") as context:
        arrays = as_numpy(x), as_numpy(w)
        call = call_of(context, case, "fwd", arrays, as_numpy(y), math=allowed)
        for _ in range(repeats + 1):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        one.stats = asdict(context.stats)
    one.ours = Ran(median(seconds[1:]), seconds[0], wrong=differing(y, wanted))
    return one


def line(one: Measured) -> str:
    gib = 1 << 30
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
            f"{ran.beyond / gib:6.3f} GiB{f', {ran.wrong} DIFFER' if ran.wrong else ''}"
            f"{f', {ran.error}' if ran.error else ''}) "
        )
    peak = one.stats.get("peak_device_bytes", 0) / gib
    return text + (
        f"ratio {one.ratio:.3f}, arena {peak:.3f} GiB, {one.stats.get('tiles')} tiles, "
        f"busy {busy_text(one.stats)}, {one.flops / one.ours.seconds / 1e12:.0f} TFLOP/s, "
        f"{one.stats.get('engine')}"
    )


@contextmanager
def reported(what: str) -> Iterator[None]:
    """A case that fails leaves the others."""
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        click.echo(f"{what}: {error}")
        settle()


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="1GiB", show_default=True)
@click.option("--engine", default=None, help="Only this engine of ours.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--only", multiple=True, help="Cases that contain this; repeatable.")
@click.option("--pinned", is_flag=True, help="The last case from pinned host memory too.")
@click.option("--torch/--no-torch", "with_torch", default=True, help="Whether torch runs too.")
@click.option("--seconds", default=math.inf, help="Begin no case after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
def main(
    device: str,
    budget: str,
    engine: str | None,
    repeats: int,
    only: tuple[str, ...],
    pinned: bool,
    with_torch: bool,
    seconds: float,
    out: Path | None,
) -> None:
    ctypes.CDLL("libcuda.so.1")  # an error of its own where there is no driver
    start, measured = time.perf_counter(), list[Measured]()
    about = provenance_on_gpu("oocdnn.bench.gpu_in_core", repeats, device, None)

    def note(one: Measured) -> None:
        measured.append(one)
        click.echo(line(one))
        if out is not None:  # a run that is cut off keeps what it has
            document = {**about, "rows": [asdict(each) for each in measured]}
            out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    with ExitStack() as made:
        # Streams that are made last in a process full of them may not run beside each other.
        gauge = made.enter_context(Gauge(torch.device(device).index or 0)) if pinned else None
        with oocdnn.Context(device, budget, engine=engine) as context:
            for case, name in CASES:
                wanted = not only or any(text in case.name for text in only)
                if not wanted or time.perf_counter() - start > seconds:
                    continue
                with reported(case.name):
                    note(measure(context, case, name, repeats, with_torch))
        if gauge is not None:
            times = [one.ours.seconds for one in measured if one.case == FROM_HOST[0].name]
            with reported(f"{FROM_HOST[0].name}, pinned"):
                note(measure_pinned(device, repeats, gauge, min(times, default=0.0)))


if __name__ == "__main__":
    main()
