"""A convolution of arrays on the GPU, its batch in parts or undivided, within a limit of workspace:
the two sides that the studies `workspace` and `shares` compare."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import click

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.cases import Case, cases_of
from oocdnn.bench.gpu.clock import BALLAST, Stopwatch
from oocdnn.bench.gpu.memory import DeviceArray, Gpu, ordinal_of
from oocdnn.bench.layers import WORDS
from oocdnn.bench.sets import SETS
from oocdnn.bench.studies.study import device
from oocdnn.bench.task import largest_element
from oocdnn.cli.problems import parse, random_call

MIB = 1 << 20
NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16")
KINDS = ("fp32", "tf32")
# Those of a context that takes engines of this name.
ENGINES = {"cudnn-nchw": ("cudnn-nchw",), "cudnn": ("cudnn-nchw", "cudnn-nhwc")}
# The options of a study of divided batches.
HOW = (
    device,
    click.option("--budget", default="50%", show_default=True, help="Tiles are timed within it."),
    click.option(
        "--engine", default="cudnn-nchw", show_default=True, type=click.Choice(list(ENGINES))
    ),
    click.option("--batch", type=click.IntRange(min=1), help="Instead of that of each layer."),
)
Call = Callable[[], object]


@dataclass
class Side:
    """One of the two. `seconds` of each call that counts; `samples` of a part; `bytes` that were
    taken besides the operands. Where it did not run, `failed` says why, and the rest is empty."""

    seconds: list[float] = field(default_factory=list)
    engine: str = ""
    parts: int = 0
    samples: int = 0
    bytes: int = 0
    failed: str = ""

    @property
    def median(self) -> float:
        return median(self.seconds) if self.seconds else math.nan


def kernels(name: str, math_name: str, batch: int | None = None) -> list[Case]:
    """The convolutions of a training step; the first layer of a network has no gradient to hand on
    to. With a batch of its own a set has another name, "deepbench n256"."""
    cases = cases_of([name], words=ARITHMETIC[math_name].word, batch=batch)
    if batch is not None:
        cases = [replace(case, set=f"{name} n{batch}") for case in cases]
    if name not in NETWORKS:
        return cases
    first = SETS[name].layers[0].name
    return [one for one in cases if one.layer != first or ":bwd_data" not in one.problem]


def in_core(problem: str) -> str:
    """The problem with every operand on the GPU."""
    direction = parse(problem).direction
    words = next(words for name, words in WORDS.items() if name == direction)
    return " ".join([problem, *(f"{word}@dev" for word in words)])


class Kernel:
    """One problem with its arrays on the GPU: inputs of integers, and a result for each side, the
    divided one first."""

    def __init__(self, gpu: Gpu, context: oocdnn.Context, problem: str) -> None:
        self._gpu, self._problem, self.text = gpu, parse(problem), problem
        self._made, largest = 0, largest_element(self._problem)

        def make(shape: tuple[int, ...], dtype: Any) -> Any:
            self._made += 1
            return DeviceArray(gpu, shape, dtype).integers(largest, self._made)

        with context:
            self._call = random_call(self._problem, context, make)
        first: DeviceArray = self._call.keywords["out"]
        self.results = first, DeviceArray(gpu, first.shape, first.dtype)

    def call(self, context: oocdnn.Context, out: DeviceArray, **more: Any) -> Call:
        keywords = {**self._call.keywords, "out": out, **more}
        return partial(getattr(context, self._call.func.__name__), *self._call.args, **keywords)

    def first(self, call: Call, context: oocdnn.Context, out: DeviceArray) -> Side:
        """What the call that plans does."""
        context.release()
        out.spoil()
        call()
        self._gpu.synchronize()
        stats = context.stats
        batch = self._problem.x[0]
        return Side(
            engine=stats.engine,
            parts=stats.tiles,
            samples=-(-batch // max(stats.split["n"], 1)),
            bytes=stats.peak_device_bytes,
        )


class Bench:
    """Runs both sides of kernels, on contexts that last. A context manager."""

    def __init__(self, device: str, budget: str, engine: str, ballast: int = BALLAST) -> None:
        self._device, self._budget, self._engine = device, budget, engine
        self._limited = dict[int, oocdnn.Context]()
        self.gpu = Gpu(ordinal_of(device))
        self._open = ExitStack()
        self.free = self._open.enter_context(self._context())  # whose calls say their limits
        self.watch = Stopwatch(self.gpu, ballast)
        self._open.callback(self.watch.close)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _context(self, limit: int | None = None) -> oocdnn.Context:
        return oocdnn.Context(self._device, self._budget, engine=self._engine, workspace=limit)

    def kernel(self, problem: str) -> Kernel:
        return Kernel(self.gpu, self.free, problem)

    def divided(self, kernel: Kernel, limit: int) -> tuple[Side, Call]:
        """What a call does with the limit, and the call. Raises what a call does."""
        out = kernel.results[0]
        call = kernel.call(self.free, out, workspace=limit)
        return kernel.first(call, self.free, out), call

    def undivided(self, kernel: Kernel, limit: int) -> tuple[Side, Call]:
        """The best of the engines on the whole batch, and a call that runs so. Raises Unsupported
        where none serves within the limit."""
        if limit not in self._limited:
            self._limited[limit] = self._open.enter_context(self._context(limit))
        context, out = self._limited[limit], kernel.results[1]
        call = kernel.call(context, out)
        found, why = list[tuple[float, str]](), ""
        for engine in ENGINES[self._engine]:
            refusal = prescribe(context, kernel.text, engine)
            why = refusal or why
            if not refusal:
                found.append((self.watch.median(call, 3), engine))
        if not found:
            raise oocdnn.Unsupported(why)
        prescribe(context, kernel.text, min(found)[1])
        return kernel.first(call, context, out), call


def prescribe(context: oocdnn.Context, problem: str, engine: str) -> str:
    """Has calls run the whole batch on the engine; why it cannot, or nothing."""
    try:
        context.use_plan(in_core(problem), f"{engine} slots 1")
    except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
        return str(error)
    return ""
