"""How close calls on a GPU come to its wires, with operands in pinned and in pageable memory.

    oocdnn bench study wires --budget 2GiB --out result.json

Each problem runs with all operands in pinned memory, in the same plain arrays each time with `out=`
given, in the same plain arrays with a fresh result each time, and in arrays that are made for the
one call, which are staged. The floor counts every byte once, at the rates of large pinned copies
measured in the same run: max(in / B_in, out / B_out, (in + out) / B_both). It leaves the arithmetic
out; the compute engine's busy time stands beside it. All ways must give the same bits.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import oocdnn
from oocdnn.bench.gpu.memory import ordinal_of
from oocdnn.bench.gpu.wires import Wires, measure
from oocdnn.bench.studies.study import Run, budget, busy_text, device, engine, study
from oocdnn.bench.task import fill

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


def filled(shape: Sequence[int], seed: int) -> Array:
    """Small integers in pinned memory, repeated so that it is filled at the speed of memory."""
    array = oocdnn.empty(shape)
    fill(array, np.random.default_rng(seed).integers(-3, 4, 1 << 20))
    return array


def call_of(context: oocdnn.Context, problem: Problem) -> Callable[..., Any]:
    if problem.direction == "bias":
        return lambda operands, out: context.conv_backward_bias(operands[0], out=out)
    moves: dict[str, Any] = {"padding": problem.taps // 2, "groups": problem.groups}
    return lambda operands, out: context.conv2d(*operands, out=out, **moves)


def compared(
    run: Run, context: oocdnn.Context, problem: Problem, wires: Wires, repeats: int
) -> Measured:
    bias = problem.direction == "bias"
    shapes = [problem.y] if bias else [problem.x, problem.w]
    result_shape = problem.y[1:2] if bias else problem.y
    pinned = [filled(shape, i) for i, shape in enumerate(shapes)]
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
        calls = Calls(call_of(context, problem), operands, out, anew=way == "once")
        times = run.time(calls, WARM_UP[way] - 1 + repeats, calls.reset)
        measured.first[way] = times.cold
        measured.seconds[way] = min(times.warm[WARM_UP[way] - 1 :])
        measured.stats[way] = asdict(context.stats)
        result = calls.result
        expected = result.copy() if expected is None else expected
        measured.same_bits &= bool(np.array_equal(result.view(np.uint32), expected.view(np.uint32)))
    return measured


class Calls:
    """Calls of one way; with `anew` each on operands that were made for it, by `reset`."""

    def __init__(
        self, call: Callable[..., Any], operands: list[Array], out: Array | None, anew: bool
    ) -> None:
        self._call, self._given, self._out, self._anew = call, operands, out, anew
        self._operands, self.result = operands, np.empty(0, np.float32)

    def reset(self) -> None:
        if self._anew:
            self._operands = [operand.copy() for operand in self._given]

    def __call__(self) -> None:
        self.result = self._call(self._operands, self._out)


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


@study("wires", device, budget("2GiB"), engine, repeats=4, on="gpu")
def command(run: Run, device: str, budget: str, engine: str | None, repeats: int) -> None:
    wires = measure(ordinal_of(device))
    run.note("wires", asdict(wires))
    run.say(wires.text)
    done = {row["problem"] for row in run.rows()}
    with oocdnn.Context(device, budget, engine=engine) as context:
        for problem in run.left(PROBLEMS, lambda problem: problem.name, done):
            one = compared(run, context, problem, wires, repeats)
            run.keep(asdict(one), line(one))
