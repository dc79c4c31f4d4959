"""Batches in parts within a limit of workspace, beside the best that is undivided (after µ-cuDNN).

    python -m oocdnn.bench.gpu_workspace --out result.json

Every operand is on the GPU. *Undivided*: the fastest of cuDNN's engines, by measurement, that runs
the whole batch with a workspace within the limit. *Divided*: what a call does with `workspace=` the
limit, which may be the same. Both choose among the same engines of cuDNN, are timed in turns by the
GPU's clock, and must give the same elements: these are small integers, of which every engine that
adds products gives the same sums.

By default only engines that work on the arrays as they lie are used, so that nothing but workspace
is taken besides the operands. A network's total is that of its convolutions, forward and backward,
without the data gradient of the first; the figures of µ-cuDNN beside it are those of whole training
steps on a P100.

A kernel (a layer in a direction) takes about half a second for each limit and kind of arithmetic, a
new kind some seconds before: 2 minutes for a network, 5 for DeepBench. With `--seconds` it stops in
time, and with `--resume` goes on.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import click

import oocdnn
from oocdnn._problem import parse, random_call
from oocdnn.bench.gpu_memory import DeviceArray, Gpu, Stopwatch
from oocdnn.bench.journal import Journal
from oocdnn.bench.layers import WORDS
from oocdnn.bench.measure import Case, largest_element
from oocdnn.bench.provenance import provenance
from oocdnn.bench.sets import SETS
from oocdnn.bench.suite import cases_of

MIB = 1 << 20
NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16")
MARKS = {"alexnet": 1.63, "resnet18": 1.21}  # µ-cuDNN's, of whole steps on a P100
LIMITS = {"deepbench": (8, 64, 128, 256, 512), "alexnet": (8, 64, 512), "resnet18": (8, 64, 512)}
MATHS = {"fp32": "f32", "tf32": "f32/tf32"}
# Those of a context that takes engines of this name.
ENGINES = {"cudnn-nchw": ("cudnn-nchw",), "cudnn": ("cudnn-nchw", "cudnn-nhwc")}
CLEARLY = 1.05  # times as fast, from which on a kernel counts as faster


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


@dataclass
class Row:
    """A kernel under a limit. `like`: the greater limit under which it was measured, where both
    sides take no more than this one even there. `wrong`: elements that differ, None where there was
    nothing to compare with."""

    set: str
    layer: str
    times: int
    problem: str
    math: str
    limit: int
    undivided: Side
    divided: Side
    like: int
    wrong: int | None = None
    took: float = 0.0

    @property
    def speedup(self) -> float:
        return self.undivided.median / self.divided.median


def kernels(name: str, math_name: str, batch: int | None = None) -> list[Case]:
    """The convolutions of a training step; the first layer of a network has no gradient to hand on
    to. With a batch of its own a set has another name, "deepbench n256"."""
    cases = cases_of([name], words=MATHS[math_name], batch=batch)
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
    """One problem with its arrays on the GPU: inputs of integers, and a result for each side."""

    def __init__(self, gpu: Gpu, context: oocdnn.Context, problem: str) -> None:
        self._gpu, self._problem = gpu, parse(problem)
        self._made, largest = 0, largest_element(self._problem)

        def make(shape: tuple[int, ...], dtype: Any) -> Any:
            self._made += 1
            return DeviceArray(gpu, shape, dtype).integers(largest, self._made)

        with context:
            self._call = random_call(self._problem, context, make)
        first: DeviceArray = self._call.keywords["out"]
        self.results = first, DeviceArray(gpu, first.shape, first.dtype)

    def call(self, context: oocdnn.Context, out: DeviceArray, **more: Any) -> Callable[[], object]:
        keywords = {**self._call.keywords, "out": out, **more}
        return partial(getattr(context, self._call.func.__name__), *self._call.args, **keywords)

    def first(self, call: Callable[[], object], context: oocdnn.Context, out: DeviceArray) -> Side:
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
    """Both sides of kernels, with contexts that last. A context manager."""

    def __init__(
        self, device: str, budget: str, engine: str, repeats: int, ballast: int | None = None
    ) -> None:
        self._device, self._budget, self._engine = device, budget, engine
        self._repeats, self._held = repeats, dict[int, oocdnn.Context]()
        self.gpu = Gpu(int(device.partition(":")[2] or 0))
        self._open = ExitStack()
        self.free = self._open.enter_context(self._context())
        self.watch = Stopwatch(self.gpu) if ballast is None else Stopwatch(self.gpu, ballast)
        self._open.callback(self.watch.close)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _context(self, limit: int | None = None) -> oocdnn.Context:
        return oocdnn.Context(self._device, self._budget, engine=self._engine, workspace=limit)

    def _limited(self, limit: int) -> oocdnn.Context:
        """A context whose calls follow the plans that are prescribed for this limit."""
        if limit not in self._held:
            self._held[limit] = self._open.enter_context(self._context(limit))
        return self._held[limit]

    def rows(self, case: Case, math_name: str, limits: Sequence[int]) -> Iterator[Row]:
        """The kernel under each limit, the greatest first."""
        kernel, last, held = Kernel(self.gpu, self.free, case.problem), None, False
        for limit in sorted(limits, reverse=True):
            began = time.perf_counter()
            row = Row(
                case.set, case.layer, case.times, case.problem, math_name, limit,
                Side(), Side(), limit,
            )  # fmt: skip
            if last is not None and max(last.undivided.bytes, last.divided.bytes) <= limit:
                row.undivided, row.divided = last.undivided, last.divided
                row.like, row.wrong = last.like, last.wrong
            else:
                held = self._measure(kernel, row, held)
            row.took = time.perf_counter() - began
            last = row if row.undivided.seconds and row.divided.seconds else None
            yield row

    def _measure(self, kernel: Kernel, row: Row, held: bool) -> bool:
        """Fills the row in. `held`: whether an undivided result is there, from another limit; says
        so of the next."""
        mine, theirs = kernel.results
        undivided = partial(self._undivided, kernel, row.problem, row.limit)
        call = kernel.call(self.free, mine, workspace=row.limit)
        row.undivided, whole = attempt(undivided)
        row.divided, parts = attempt(lambda: (kernel.first(call, self.free, mine), call))
        sides = [
            (side, work)
            for side, work in ((row.undivided, whole), (row.divided, parts))
            if work is not None
        ]
        times = self.watch.turns([work for _, work in sides], self._repeats)
        for (side, _), seconds in zip(sides, times, strict=True):
            side.seconds = seconds
        held = held or whole is not None
        if held and parts is not None:
            row.wrong = mine.differing(theirs)
        return held

    def _undivided(
        self, kernel: Kernel, problem: str, limit: int
    ) -> tuple[Side, Callable[[], object]]:
        """The best of the engines, which the context then follows."""
        context, out = self._limited(limit), kernel.results[1]
        call = kernel.call(context, out)
        found, why = list[tuple[float, str]](), ""
        for engine in ENGINES[self._engine]:
            refusal = prescribe(context, problem, engine)
            why = refusal or why
            if not refusal:
                found.append((self.watch.median(call, 3), engine))
        if not found:
            raise oocdnn.Unsupported(why)
        prescribe(context, problem, min(found)[1])
        return kernel.first(call, context, out), call


def prescribe(context: oocdnn.Context, problem: str, engine: str) -> str:
    """Has calls run the whole batch on the engine; why it cannot, or nothing."""
    try:
        context.use_plan(in_core(problem), f"{engine} slots 1")
    except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
        return str(error)
    return ""


def attempt(
    work: Callable[[], tuple[Side, Callable[[], object]]],
) -> tuple[Side, Callable[[], object] | None]:
    """What the work gives, or a side that failed."""
    try:
        return work()
    except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
        return Side(failed=str(error)), None


def side_text(side: Side) -> str:
    if side.failed:
        return f"no engine ({side.failed})"
    parts = f", {side.parts} parts of {side.samples}" if side.parts > 1 else ""
    return f"{side.median * 1e3:8.3f} ms{parts}, {side.bytes / MIB:.1f} MiB, {side.engine}"


def line(row: Row) -> str:
    like = "" if row.like == row.limit else f" as under {row.like // MIB} MiB"
    wrong = "" if not row.wrong else f", {row.wrong} DIFFER"
    return (
        f"{row.layer} {row.problem} {row.limit // MIB:4d} MiB: {row.speedup:6.3f} x{like}, "
        f"undivided {side_text(row.undivided)}; divided {side_text(row.divided)}{wrong}"
    )


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each set, kind of arithmetic and limit, over the kernels that both sides ran."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.set, row.math, row.limit), []).append(row)
    return [_summed(*key, group) for key, group in sorted(groups.items())]


def _summed(name: str, math_name: str, limit: int, rows: Sequence[Row]) -> dict[str, Any]:
    both = [row for row in rows if row.undivided.seconds and row.divided.seconds]
    found: dict[str, Any] = {
        "set": name,
        "math": math_name,
        "limit": limit,
        "kernels": len(rows),
        "no undivided engine": sum(not row.undivided.seconds for row in rows),
        "no divided engine": sum(not row.divided.seconds for row in rows),
        "elements that differ": sum(row.wrong or 0 for row in rows),
    }
    if not both:
        return found
    speedups, best = [row.speedup for row in both], max(both, key=lambda row: row.speedup)
    found |= {
        "faster": sum(speedup >= CLEARLY for speedup in speedups),
        "mean": mean(speedups),
        "geometric mean": geometric_mean(speedups),
        "least": min(speedups),
        "best": best.speedup,
        "best kernel": best.problem,
        "undivided seconds": sum(row.times * row.undivided.median for row in both),
        "divided seconds": sum(row.times * row.divided.median for row in both),
    }
    if name in NETWORKS and len(both) == len(kernels(name, math_name)):  # all of its own batch
        found["whole"] = found["undivided seconds"] / found["divided seconds"]
    return found


def summary_line(found: dict[str, Any]) -> str:
    head = f"{found['set']:<10} {found['math']} {found['limit'] // MIB:4d} MiB:"
    text, wrong = f"{head} {found['kernels']} kernels", found["elements that differ"]
    if missing := found["no undivided engine"]:
        text += f", {missing} without an undivided engine"
    if "mean" in found:
        text += (
            f", {found['faster']} faster, mean {found['mean']:.3f} x (geometric "
            f"{found['geometric mean']:.3f}), {found['least']:.3f} to {found['best']:.3f}"
        )
    if "whole" in found:
        text += f", whole {found['whole']:.3f} x"
        if mark := MARKS.get(found["set"]):
            text += f" (µ-cuDNN {mark} on a P100)"
    return text + (f", {wrong} DIFFER" if wrong else "")


def row_of(fields: dict[str, Any]) -> Row:
    """From a journal."""
    sides = {name: Side(**fields[name]) for name in ("undivided", "divided")}
    return Row(**{**fields, **sides})


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="50%", show_default=True, help="Tiles are timed within it.")
@click.option("--engine", default="cudnn-nchw", type=click.Choice(list(ENGINES)), show_default=True)
@click.option("--set", "names", multiple=True, type=click.Choice(["deepbench", *NETWORKS]))
@click.option("--limit", "limits", multiple=True, type=click.IntRange(min=0), help="MiB.")
@click.option("--math", "maths", multiple=True, type=click.Choice(list(MATHS)))
@click.option("--batch", type=click.IntRange(min=1), help="Instead of that of each layer.")
@click.option("--only", multiple=True, help="Layers or problems that contain this; repeatable.")
@click.option("--repeats", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--seconds", default=math.inf, help="Begin no kernel after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
@click.option("--resume", is_flag=True, help="Go on with what --out holds already.")
def main(
    device: str, budget: str, engine: str, names: tuple[str, ...], limits: tuple[int, ...],
    maths: tuple[str, ...], batch: int | None, only: tuple[str, ...], repeats: int, seconds: float,
    out: Path | None, resume: bool,
) -> None:  # fmt: skip
    start = time.perf_counter()
    journal = Journal(out, provenance("oocdnn.bench.gpu_workspace", repeats), resume)
    rows = [row_of(fields) for fields in journal.rows("rows")]
    with Bench(device, budget, engine, repeats) as bench:
        journal.note("engines", bench.free.info())
        for name in names or tuple(LIMITS):
            wanted = [limit * MIB for limit in limits or LIMITS.get(name, (8, 64, 512))]
            for case, math_name in chosen(name, maths or tuple(MATHS), only, batch):
                done = {
                    row.limit for row in rows if (row.set, row.problem) == (case.set, case.problem)
                }
                if done.issuperset(wanted) or time.perf_counter() - start > seconds:
                    continue
                for row in bench.rows(case, math_name, wanted):
                    if row.limit in done:
                        continue
                    rows.append(row)
                    click.echo(line(row))
                    journal.add("rows", asdict(row))
    journal.note("summary", summary(rows))
    for found in summary(rows):
        click.echo(summary_line(found))


def chosen(
    name: str, maths: Sequence[str], only: Sequence[str], batch: int | None
) -> Iterator[tuple[Case, str]]:
    for math_name in maths:
        for case in kernels(name, math_name, batch):
            label = f"{case.layer} {case.problem} {math_name}"
            if not only or any(text in label for text in only):
                yield case, math_name


if __name__ == "__main__":
    main()
