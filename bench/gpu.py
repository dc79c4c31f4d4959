"""How close calls on a GPU come to its wires, with operands in pinned and in pageable memory.

    python -m oocdnn.bench.gpu --budget 2GiB --out result.json

Each problem runs with all operands in pinned memory, in the same plain arrays each time with `out=`
given, in the same plain arrays with a fresh result each time, and in arrays that are made for the
one call, which are staged. The floor counts every byte once, at the rates of large pinned copies
measured in the same run: max(in / B_in, out / B_out, (in + out) / B_both). It leaves the arithmetic
out; the compute engine's busy time stands beside it. All ways must give the same bits.
"""

import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

import oocdnn
from oocdnn.bench.busy import busy_text
from oocdnn.bench.gpu_wires import Wires, measure

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Problem:
    """A forward convolution whose padding keeps the size, or the bias gradient of its output."""

    name: str
    x: tuple[int, ...]
    filters: int
    taps: int
    groups: int = 1
    direction: str = "forward"

    @property
    def w(self) -> tuple[int, ...]:
        return (self.filters, self.x[1] // self.groups, self.taps, self.taps)

    @property
    def y(self) -> tuple[int, ...]:
        return (self.x[0], self.filters, *self.x[2:])


# Calls before those that count: plain arrays that are used again are pinned in the ninth.
WARM_UP = {"pinned": 2, "pageable": 9, "fresh": 9, "once": 2}

PROBLEMS = (
    Problem("1x1 64 to 64 at 224", (64, 64, 224, 224), 64, 1),
    Problem("depthwise 3x3 256 at 112", (64, 256, 112, 112), 256, 3, groups=256),
    Problem("VGG 3x3 64 to 64 at 224", (64, 64, 224, 224), 64, 3),
    Problem("bias gradient 64 at 224", (128, 64, 224, 224), 64, 1, direction="bias"),
)


@dataclass
class Measured:
    problem: str
    bytes_in: int
    bytes_out: int
    floor: float
    seconds: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    same_bits: bool = True


def filled(array: Array, seed: int) -> Array:
    """Small integers, repeated so that large arrays are filled at the speed of memory."""
    block = np.random.default_rng(seed).integers(-3, 4, 1 << 20).astype(array.dtype)
    flat = array.reshape(-1)
    for begin in range(0, flat.size, block.size):
        part = flat[begin : begin + block.size]
        part[...] = block[: part.size]
    return array


def call_of(context: oocdnn.Context, problem: Problem) -> Callable[..., Any]:
    if problem.direction == "bias":
        return lambda operands, out: context.conv_backward_bias(operands[0], out=out)
    moves: dict[str, Any] = {"padding": problem.taps // 2, "groups": problem.groups}
    return lambda operands, out: context.conv2d(*operands, out=out, **moves)


def run(context: oocdnn.Context, problem: Problem, wires: Wires, repeats: int) -> Measured:
    bias = problem.direction == "bias"
    shapes = [problem.y] if bias else [problem.x, problem.w]
    result_shape = problem.y[1:2] if bias else problem.y
    call = call_of(context, problem)
    pinned = [filled(oocdnn.empty(shape), i) for i, shape in enumerate(shapes)]
    pageable = [operand.copy() for operand in pinned]
    ways: dict[str, tuple[list[Array], Array | None]] = {
        "pinned": (pinned, oocdnn.empty(result_shape)),
        "pageable": (pageable, np.zeros(result_shape, np.float32)),
        "fresh": (pageable, None),
        "once": (pageable, None),
    }
    bytes_in = sum(operand.nbytes for operand in pinned)
    bytes_out = 4 * int(np.prod(result_shape))
    floor = wires.seconds(bytes_in, bytes_out)
    measured = Measured(problem.name, bytes_in, bytes_out, floor)
    expected: Array | None = None
    for way, (operands, out) in ways.items():
        times = []
        for _ in range(WARM_UP[way] + repeats):
            used = [operand.copy() for operand in operands] if way == "once" else operands
            start = time.perf_counter()
            result = call(used, out)
            times.append(time.perf_counter() - start)
        measured.first[way], measured.seconds[way] = times[0], min(times[WARM_UP[way] :])
        measured.stats[way] = asdict(context.stats)
        expected = result.copy() if expected is None else expected
        measured.same_bits &= bool(np.array_equal(result.view(np.uint32), expected.view(np.uint32)))
    return measured


def line(measured: Measured) -> str:
    """One problem for people: milliseconds, and how many times the floor."""
    texts = [f"{measured.problem:26} floor {measured.floor * 1e3:7.2f} ms"]
    for way, seconds in measured.seconds.items():
        stats = measured.stats[way]
        texts.append(f"{way} {seconds * 1e3:.2f} ({seconds / measured.floor:.2f}x)")
        if way != "fresh":
            busy = busy_text(stats)
            texts.append(f"[{stats['tiles']} tiles, {stats['engine']}, busy {busy}]")
    return ", ".join(texts) + ("" if measured.same_bits else " BITS DIFFER")


@click.command()
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="2GiB", show_default=True)
@click.option("--engine", default=None, help="Only this engine.")
@click.option("--repeats", default=4, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Also write everything as JSON.")
def main(device: str, budget: str, engine: str | None, repeats: int, out: str | None) -> None:
    """Time calls with operands in host memory against the wires of the GPU."""
    ctypes.CDLL("libcuda.so.1")  # an error of its own where there is no driver
    wires = measure()
    click.echo(
        f"wires, GB/s: in {wires.inward:.1f}, out {wires.outward:.1f}, both {wires.both:.1f}"
    )
    results = []
    with oocdnn.Context(device, budget, engine=engine) as context:
        for problem in PROBLEMS:
            results.append(run(context, problem, wires, repeats))
            click.echo(line(results[-1]))
    if out is not None:
        found = {"wires": asdict(wires), "problems": [asdict(result) for result in results]}
        Path(out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
