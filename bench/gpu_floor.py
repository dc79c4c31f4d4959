"""How close convolutions of arrays in pinned host memory come to the floor of a GPU.

    python -m oocdnn.bench.gpu_floor --out result.json

The floor of a problem is the least time by wires and arithmetic, both measured in the same run:
max(a, in / B_in, out / B_out, (in + out) / B_both), every byte counted once, the rates those of the
memory that the operands lie in. `a` is the best time for the same arithmetic: our own tiles, and
where those take longer than the wires, every operand on the GPU too: torch in core, NCHW and
channels-last, with the engine that its own measurements choose (that it guesses, where the wires
take clearly longer even so), and our own whole, where none of torch's counts. Where torch computes
fp32 by Winograd or FFT, which is not the same arithmetic, its time is noted and not counted.
Elements are small integers, for which every engine that adds products gives the same bits as torch.
"""

import ctypes
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import torch

import oocdnn
from oocdnn._problem import parse
from oocdnn.bench.busy import busy_text
from oocdnn.bench.cpu import call_of
from oocdnn.bench.gpu_wires import Gauge, Wires
from oocdnn.bench.layers import DIRECTIONS, GPU_LAYERS, LARGEST, ROLES, Direction, Layer, Operand
from oocdnn.bench.provenance import provenance
from oocdnn.bench.torch_call import convolution

Array = np.ndarray[Any, np.dtype[Any]]

# The type of the elements, the word in problem strings, and what `math=` says.
MATHS = {
    "fp32": (torch.float32, "f32", "fp32"),
    "tf32": (torch.float32, "f32/tf32", "tf32"),
    "bf16": (torch.bfloat16, "bf16", "fp32"),
}
OTHER_ARITHMETIC = ("winograd", "fft")  # in the names of kernels
MANY_FLOPS = 2e13  # of a call that is timed once, and in fp32 not by torch: that takes minutes
MUCH = 1 << 30  # bytes moved, from which on the worst ratio counts
ENOUGH = 0.2  # seconds of a case's calls, of which brief ones are repeated more often,
MOST_CALLS = 20  # but not more: right after the first call Python itself is still slow
CLEARLY = 0.8  # of a time, below which another does not matter beside it


class Pinned:
    """Pinned memory that all cases use in turn, one piece for each operand."""

    def __init__(self) -> None:
        self._piece: dict[Operand, Array] = {}

    def tensor(self, operand: Operand, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor in it; what the operand held before is overwritten."""
        size = math.prod(shape) * dtype.itemsize
        held = self._piece.get(operand)
        if held is None or held.size < size:
            self._piece.pop(operand, None)
            held = self._piece[operand] = oocdnn.empty(size, np.uint8)
        return torch.from_numpy(held[:size]).view(dtype).view(*shape)


def fill_on_gpu(on_gpu: torch.Tensor, seed: int) -> torch.Tensor:
    """Small random integers in a tensor on the GPU, which is returned."""
    generator = torch.Generator("cuda").manual_seed(seed)
    flat = on_gpu.view(-1)
    for begin in range(0, flat.numel(), 1 << 28):
        part = flat[begin : begin + (1 << 28)]
        whole = torch.randint(
            -LARGEST, LARGEST + 1, part.shape, device="cuda", dtype=torch.int8, generator=generator
        )
        part.copy_(whole)
    return on_gpu


def fill(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Small random integers, made on the GPU; returns them there too."""
    on_gpu = fill_on_gpu(torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda"), seed)
    tensor.copy_(on_gpu)
    return on_gpu


def in_core(case: Layer, direction: Direction) -> Callable[..., torch.Tensor]:
    """torch's own function for the direction; takes the inputs in the order of `ROLES`."""
    return convolution(parse(case.problem(direction)))


def event_seconds(work: Callable[[], object], repeats: int) -> float:
    """The best of `repeats`, at least one, by the GPU's clock, after one that does not count."""
    times: list[float] = []
    for _ in range(repeats + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return min(times[1:])


def other_arithmetic(work: Callable[[], object]) -> str | None:
    """By what the work computes instead of adding products; None where it adds products."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    names = " ".join(event.key.lower() for event in profile.key_averages())
    return next((word for word in OTHER_ARITHMETIC if word in names), None)


def arithmetic_seconds(
    call: Callable[..., object], case: Layer, inputs: list[torch.Tensor], judge: bool, wire: float
) -> dict[str, Any]:
    """`in_core_seconds`; without torch's measurements, which take seconds, where what it guesses is
    well within the time of the wires, so that nothing faster would change the floor, or does not
    count, which what it would find counts no more."""
    if judge and case.flops > MANY_FLOPS:
        return {"nchw": "not asked: what torch guesses for so many products may take minutes"}
    guessed = in_core_seconds(call, case, inputs, judge, measures=False)
    times = [value for value in guessed.values() if isinstance(value, float)]
    if not times or min(times) <= CLEARLY * wire or case.flops > MANY_FLOPS:
        return guessed
    return in_core_seconds(call, case, inputs, judge)


def channels_last(case: Layer) -> torch.memory_format:
    """The memory order of its tensors that has the channels innermost."""
    return torch.channels_last if case.rank == 2 else torch.channels_last_3d


def in_core_seconds(
    call: Callable[..., object],
    case: Layer,
    inputs: list[torch.Tensor],
    judge: bool,
    measures: bool = True,
) -> dict[str, Any]:
    """Seconds of a call on arrays on the GPU by memory order. What it cannot do is left out with
    its reason, and so is what computes otherwise, where that is judged. `measures`: whether torch
    chooses engines by its own measurements."""
    seconds: dict[str, Any] = {}
    torch.backends.cudnn.benchmark = measures
    for name, order in (("nchw", torch.contiguous_format), ("nhwc", channels_last(case))):
        try:
            here = [tensor.contiguous(memory_format=order) for tensor in inputs]
            other = other_arithmetic(partial(call, *here)) if judge else None
            took = event_seconds(partial(call, *here), 1 if case.flops > MANY_FLOPS else 3)
            seconds[name] = took if other is None else f"{took * 1e3:.2f} ms by {other}"
        except RuntimeError as error:
            seconds[name] = str(error).splitlines()[0]
        here = []
        torch.cuda.empty_cache()
    torch.backends.cudnn.benchmark = False
    return seconds


@dataclass
class Measured:
    """One layer in one direction and one kind of arithmetic."""

    layer: str
    direction: Direction
    math: str
    problem: str
    bytes_in: int
    bytes_out: int
    flops: int
    torch_seconds: dict[str, Any] = field(default_factory=dict)  # both in core, where they matter
    own_seconds: dict[str, Any] = field(default_factory=dict)
    first: float = 0.0  # seconds of the first call, which plans and prepares
    seconds: list[float] = field(default_factory=list)
    prepared: int = 0  # of the later calls
    difference: float = 0.0
    wrong: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    plan: str = ""
    wires: Wires | None = None
    floors: dict[str, float] = field(default_factory=dict)
    duplex: float = 0.0  # seconds, see Wires
    took: float = 0.0  # seconds, with filling, torch and the comparison

    @property
    def least(self) -> float:
        """The floor, or what the wire takes where its directions share it evenly."""
        return max(self.floor[1], self.duplex)

    @property
    def floor(self) -> tuple[str, float]:
        """What limits, and its seconds."""
        return max(self.floors.items(), key=lambda item: item[1])

    @property
    def ratio(self) -> float:
        return median(self.seconds) / self.floor[1]


def provenance_on_gpu(module: str, rounds: int, device: str, wires: Wires | None) -> dict[str, Any]:
    """`provenance` with the libraries that compute, the GPU and, where measured, its wires."""
    versions = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
    return {
        **provenance(module, rounds, **versions),
        "gpu": torch.cuda.get_device_name(device),
        "wires": None if wires is None else asdict(wires),
    }


def note_floors(one: Measured, wires: Wires) -> None:
    """Sets the seconds of each limit."""
    in_core_times = (*one.torch_seconds.values(), *one.own_seconds.values())
    times = [value for value in in_core_times if isinstance(value, float)]
    one.wires = wires
    one.floors = {
        **wires.floors(one.bytes_in, one.bytes_out),
        "arithmetic": min([*times, one.stats["compute_seconds"]]),
    }
    one.duplex = wires.duplex(one.bytes_in, one.bytes_out)


def as_numpy(tensor: torch.Tensor) -> Array:
    """The same memory; bfloat16 is what `ml_dtypes` calls so."""
    array: Array
    if tensor.dtype != torch.bfloat16:
        array = tensor.numpy()
    else:
        import ml_dtypes

        array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return array


def bytes_of(tensor: torch.Tensor) -> Array:
    """The memory of a contiguous tensor."""
    return as_numpy(tensor).reshape(-1).view(np.uint8)


def compare(result: torch.Tensor, expected: torch.Tensor) -> tuple[int, float]:
    """Elements that differ, and by how much at most; piece by piece on the GPU."""
    wrong, most = 0, 0.0
    ours, theirs = result.reshape(-1), expected.reshape(-1)
    for begin in range(0, ours.numel(), 1 << 28):
        piece = slice(begin, begin + (1 << 28))
        difference = (ours[piece].cuda().float() - theirs[piece].float()).abs()
        wrong += int((difference != 0).sum())
        most = max(most, float(difference.max()))
    return wrong, most


def convolve_in_core(
    context: oocdnn.Context, case: Layer, direction: Direction, *inputs: torch.Tensor, **more: Any
) -> torch.Tensor:
    """One call of oocdnn whose result lies as the first input does."""
    shape = case.shape(ROLES[direction][-1])
    order = channels_last(case) if inputs[0].stride(1) == 1 else torch.contiguous_format
    out = torch.empty(shape, dtype=inputs[0].dtype, device="cuda", memory_format=order)
    call_of(context, case, direction, inputs, out, **more)()
    return out


def measure(
    context: oocdnn.Context,
    gauge: Gauge,
    pinned: Pinned,
    case: Layer,
    direction: Direction,
    math_name: str,
    repeats: int,
) -> Measured:
    dtype, word, allowed = MATHS[math_name]
    torch.backends.cudnn.allow_tf32 = math_name == "tf32"
    *sources, target = ROLES[direction]
    host = [pinned.tensor(name, case.shape(name), dtype) for name in sources]
    here = [fill(tensor, seed) for seed, tensor in enumerate(host)]
    result = pinned.tensor(target, case.shape(target), dtype)
    source = max(host, key=lambda tensor: tensor.nbytes)
    wires = gauge.rates(bytes_of(source), bytes_of(result), repeats=3)
    bytes_in, bytes_out = sum(tensor.nbytes for tensor in host), result.nbytes
    one = Measured(
        layer=case.name,
        direction=direction,
        math=math_name,
        problem=f"{case.problem(direction)} {word}",
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        flops=case.flops,
    )
    inputs = (as_numpy(host[0]), as_numpy(host[1]))
    out = as_numpy(result)
    call = call_of(context, case, direction, inputs, out, math=allowed)
    while len(one.seconds) <= repeats or (
        len(one.seconds) <= MOST_CALLS and sum(one.seconds[1:]) < ENOUGH
    ):
        start = time.perf_counter()
        call()
        one.seconds.append(time.perf_counter() - start)
        one.stats = asdict(context.stats)
        if len(one.seconds) > 1:
            one.prepared += one.stats["prepared"]
    one.first = one.seconds.pop(0)
    one.plan = context.plan(one.problem).explain()
    wire = max(wires.floors(bytes_in, bytes_out).values())
    if one.stats["compute_seconds"] > wire:
        one.torch_seconds = arithmetic_seconds(
            in_core(case, direction), case, here, math_name == "fp32", wire
        )
        if not any(isinstance(value, float) for value in one.torch_seconds.values()):
            own = partial(convolve_in_core, context, case, direction, math=allowed)
            one.own_seconds = in_core_seconds(own, case, here, judge=False)
    # Integers are exact in TF32, and its engines only add products.
    torch.backends.cudnn.allow_tf32 = True
    one.wrong, one.difference = compare(result, in_core(case, direction)(*here))
    note_floors(one, wires)
    torch.cuda.empty_cache()
    return one


def line(one: Measured) -> str:
    limit, floor = one.floor
    return (
        f"{one.layer:<21} {one.direction:<10} {one.math} {median(one.seconds) * 1e3:8.2f} ms "
        f"{one.ratio:6.3f} x {limit:<10} {floor * 1e3:8.2f} ms, "
        f"{median(one.seconds) / one.least:6.3f} x shared, first {one.first:5.2f} s, "
        f"{one.stats['tiles']:4d} tiles, busy {busy_text(one.stats)}, {one.stats['engine']}"
        f"{'' if one.wrong == 0 else f', {one.wrong} DIFFER by {one.difference:g}'}"
        f"{'' if one.prepared == 0 else f', prepared {one.prepared} later'}"
    )


def summary(measured: Sequence[Measured]) -> dict[str, float]:
    """Medians and worst over all rows."""
    large = [one.ratio for one in measured if one.bytes_in + one.bytes_out >= MUCH]
    return {
        "time/floor median": median(one.ratio for one in measured),
        "time/floor worst from 1 GiB on": max(large, default=math.nan),
        "time/shared wire median": median(median(one.seconds) / one.least for one in measured),
        "first call worst, s": max(one.first for one in measured),
        "elements that differ": sum(one.wrong for one in measured),
    }


def chosen(only: Sequence[str], maths: Sequence[str]) -> Iterator[tuple[Layer, Direction, str]]:
    for case in GPU_LAYERS:
        for direction in DIRECTIONS:
            for name in maths:
                label = f"{case.name} {case.problem(direction)} {name}"
                if not only or any(text in label for text in only):
                    yield case, direction, name


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="2GiB", show_default=True)
@click.option("--engine", default=None, help="Only this engine of ours.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--only", multiple=True, help="Layers or problems that contain this; repeatable.")
@click.option("--math", "maths", multiple=True, type=click.Choice(list(MATHS)))
@click.option("--seconds", default=math.inf, help="Begin no case after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
def main(
    device: str,
    budget: str,
    engine: str | None,
    repeats: int,
    only: tuple[str, ...],
    maths: tuple[str, ...],
    seconds: float,
    out: Path | None,
) -> None:
    ctypes.CDLL("libcuda.so.1")  # an error of its own where there is no driver
    start = time.perf_counter()
    measured = list[Measured]()
    with (
        Gauge(torch.device(device).index or 0) as gauge,
        oocdnn.Context(device, budget, engine=engine) as context,
    ):
        wires, pinned = gauge.rates(), Pinned()
        click.echo(f"GB/s in {wires.inward:.1f}, out {wires.outward:.1f}, both {wires.both:.1f}")
        about = provenance_on_gpu("oocdnn.bench.gpu_floor", repeats, device, wires)
        for case, direction, name in chosen(only, maths or tuple(MATHS)):
            if time.perf_counter() - start > seconds:
                break
            began = time.perf_counter()
            try:
                one = measure(context, gauge, pinned, case, direction, name, repeats)
            except (ValueError, MemoryError, RuntimeError) as error:
                click.echo(f"{case.name} {direction} {name}: {error}")
                continue
            one.took = time.perf_counter() - began
            measured.append(one)
            click.echo(line(one))
            if out is not None:  # a run that is cut off keeps what it has
                rows = [asdict(each) for each in measured]
                document = {**about, "summary": summary(measured), "rows": rows}
                out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for label, value in (summary(measured) if measured else {}).items():
        click.echo(f"{label}: {value:.4g}")


if __name__ == "__main__":
    main()
