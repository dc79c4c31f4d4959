"""One workspace for all convolutions of a network (µ-cuDNN's WD) against equal shares of it.

    python -m oocdnn.bench.gpu_shares --out result.json

Every convolution of a training step holds its own part of the workspace, as in frameworks that keep
one for each. What a kernel takes with how much workspace is measured first (`Context.divisions`).
Then totals of so many bytes for each kernel are divided, in equal shares and by
`oocdnn.workspace.divide_workspace`, and the calls of both are timed, each kernel with `workspace=`
its share, by the GPU's clock. Results are compared: those of one kernel must be the same with every
share.

The seconds of a network are the sum over its kernels, each as often as it occurs. Measuring should
take about a second for a kernel, and its calls half a second for each share. With `--seconds` it
stops in time, and with `--resume` goes on.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

import oocdnn
from oocdnn.bench.cases import Case
from oocdnn.bench.gpu_divided import ENGINES, MATHS, MIB, NETWORKS, Bench, kernels
from oocdnn.bench.journal import Journal
from oocdnn.bench.provenance import provenance
from oocdnn.workspace import WorkspaceDivision, divide_workspace, equal_shares

NAMES, EACH = ("vgg16", "resnet50"), (8, 64, 512)  # MiB for each kernel of a network
WAYS = ("equal shares", "one workspace")
Kernels = dict[tuple[str, int], Sequence["Way"]]  # by problem and occurrence


@dataclass(frozen=True)
class Way:
    """A division that is worth having: see `Context.divisions`."""

    seconds: float
    workspace_bytes: int
    parts: int


@dataclass
class Measured:
    """The ways to run a kernel."""

    set: str
    layer: str
    times: int
    problem: str
    math: str
    ways: list[Way]
    took: float


@dataclass
class Called:
    """A kernel with a share of the workspace: median seconds of its calls. `wrong`: elements that
    differ from those with the kernel's first share."""

    problem: str
    workspace: int
    seconds: float
    engine: str
    parts: int
    bytes: int
    wrong: int
    took: float


@dataclass
class Total:
    """A network with `each` bytes for every kernel, `total` in all, in one of the two ways: seconds
    of its calls, None where not all were made, as `predicted` by what was measured of each, and the
    bytes that are handed out. Where the total is too little, `failed` says so."""

    set: str
    math: str
    way: str
    each: int
    total: int
    predicted: float | None = None
    seconds: float | None = None
    bytes: int = 0
    failed: str = ""


def ways(context: oocdnn.Context, problem: str) -> list[Way]:
    return [
        Way(one.seconds, one.workspace_bytes, len(one.samples))
        for one in context.divisions(problem)
    ]


def occurrences(measured: Sequence[Measured]) -> Kernels:
    """Every kernel as often as it occurs, with its ways."""
    return {(one.problem, i): one.ways for one in measured for i in range(one.times)}


def divide(way: str, layers: Kernels, total: int) -> WorkspaceDivision[tuple[str, int], Way]:
    """Raises OutOfMemory where the total is too little."""
    return (equal_shares if way == "equal shares" else divide_workspace)(layers, total)


def plans(
    measured: Sequence[Measured], each: Sequence[int]
) -> Iterator[tuple[Total, Mapping[tuple[str, int], Way]]]:
    """Both ways with every total, and what each kernel is given: nothing where that failed."""
    layers = occurrences(measured)
    name, math_name = measured[0].set, measured[0].math
    for share in each:
        total = share * len(layers)
        for way in WAYS:
            one = Total(name, math_name, way, share, total)
            try:
                made = divide(way, layers, total)
            except oocdnn.OutOfMemory as error:
                one.failed = str(error)
                yield one, {}
                continue
            one.predicted, one.bytes = made.seconds, made.workspace_bytes
            yield one, made.chosen


def wanted(measured: Sequence[Measured], each: Sequence[int]) -> dict[str, list[int]]:
    """The shares that any of the plans gives each kernel, the greatest first."""
    shares: dict[str, set[int]] = {one.problem: set() for one in measured}
    for _, chosen in plans(measured, each):
        for (problem, _), way in chosen.items():
            shares[problem].add(way.workspace_bytes)
    return {problem: sorted(found, reverse=True) for problem, found in shares.items()}


def calls(bench: Bench, problem: str, shares: Sequence[int], repeats: int) -> Iterator[Called]:
    """The kernel with each of the shares."""
    kernel = bench.kernel(problem)
    first, out = kernel.results[1], kernel.results[0]
    for number, share in enumerate(shares):
        began = time.perf_counter()
        side, call = bench.divided(kernel, share)
        seconds = bench.watch.median(call, repeats)
        wrong = out.differing(first) if number else 0
        if number == 0:
            first.take(out)
        took = time.perf_counter() - began
        yield Called(problem, share, seconds, side.engine, side.parts, side.bytes, wrong, took)


def totals(
    measured: Sequence[Measured], each: Sequence[int], called: Sequence[Called]
) -> Iterator[Total]:
    """With the seconds of calls where all of them were made."""
    seconds = {(one.problem, one.workspace): one.seconds for one in called}
    for one, chosen in plans(measured, each):
        keys = [(problem, way.workspace_bytes) for (problem, _), way in chosen.items()]
        if keys and all(key in seconds for key in keys):
            one.seconds = sum(seconds[key] for key in keys)
        yield one


def lines(found: Sequence[Total]) -> Iterator[str]:
    """A line for each total, both ways in it."""
    for equal, shared in zip(found[::2], found[1::2], strict=True):
        head = (
            f"{equal.set:<10} {equal.math} {equal.each / MIB:g} MiB a kernel, "
            f"{equal.total / MIB:.0f} in all:"
        )
        yield f"{head} {way_text(equal)}; {way_text(shared)}{gain(equal, shared)}"


def way_text(one: Total) -> str:
    if one.predicted is None:
        return f"{one.way}: {one.failed}"
    seconds = "not called" if one.seconds is None else f"{one.seconds * 1e3:.2f} ms"
    return (
        f"{one.way} {seconds} (predicted {one.predicted * 1e3:.2f}, "
        f"{one.bytes / MIB:.0f} MiB handed out)"
    )


def gain(equal: Total, shared: Total) -> str:
    if equal.seconds is None or shared.seconds is None:
        return ""
    return f": {equal.seconds / shared.seconds:.3f} x"


def called_line(one: Called) -> str:
    wrong = f", {one.wrong} DIFFER" if one.wrong else ""
    return (
        f"{one.problem} with {one.workspace / MIB:.1f} MiB: {one.seconds * 1e3:.3f} ms in "
        f"{one.parts} parts, {one.engine}{wrong}"
    )


class Run:
    """One run of the command, with its rows as they come."""

    def __init__(self, bench: Bench, journal: Journal, end: float, repeats: int) -> None:
        self._bench, self._journal, self._end, self._repeats = bench, journal, end, repeats
        self.measured = [_measured(fields) for fields in journal.rows("measured")]
        self.called = [Called(**fields) for fields in journal.rows("called")]

    @property
    def late(self) -> bool:
        return time.perf_counter() > self._end

    def measure(self, cases: Sequence[Case], math_name: str) -> list[Measured] | None:
        """The ways of every kernel; None where time does not suffice."""
        known = {(one.set, one.problem): one for one in self.measured}
        for case in cases:
            if (case.set, case.problem) in known:
                continue
            if self.late:
                return None
            began = time.perf_counter()
            found = ways(self._bench.free, case.problem)
            took = time.perf_counter() - began
            one = Measured(case.set, case.layer, case.times, case.problem, math_name, found, took)
            known[case.set, case.problem] = one
            self.measured.append(one)
            self._journal.add("measured", asdict(one))
            click.echo(f"{case.set} {case.layer} {case.problem}: {len(found)} ways, {took:.1f} s")
        return [known[case.set, case.problem] for case in cases]

    def call(self, measured: Sequence[Measured], each: Sequence[int]) -> None:
        """Every share that is wanted and not known yet, as far as time suffices."""
        known = {(one.problem, one.workspace) for one in self.called}
        for problem, shares in wanted(measured, each).items():
            missing = [share for share in shares if (problem, share) not in known]
            if self.late or not missing:
                continue
            for one in calls(self._bench, problem, missing, self._repeats):
                self.called.append(one)
                self._journal.add("called", asdict(one))
                click.echo(called_line(one))


def _measured(fields: dict[str, Any]) -> Measured:
    return Measured(**{**fields, "ways": [Way(**way) for way in fields["ways"]]})


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="50%", show_default=True, help="Tiles are timed within it.")
@click.option("--engine", default="cudnn-nchw", type=click.Choice(list(ENGINES)), show_default=True)
@click.option("--set", "names", multiple=True, type=click.Choice(NETWORKS))
@click.option("--each", multiple=True, type=float, help="MiB for each kernel; repeatable.")
@click.option("--math", "maths", multiple=True, type=click.Choice(list(MATHS)))
@click.option("--batch", type=click.IntRange(min=1), help="Instead of that of each layer.")
@click.option("--repeats", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--seconds", default=math.inf, help="Begin no kernel after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
@click.option("--resume", is_flag=True, help="Go on with what --out holds already.")
def main(
    device: str, budget: str, engine: str, names: tuple[str, ...], each: tuple[float, ...],
    maths: tuple[str, ...], batch: int | None, repeats: int, seconds: float, out: Path | None,
    resume: bool,
) -> None:  # fmt: skip
    end = time.perf_counter() + seconds
    journal = Journal(out, provenance("oocdnn.bench.gpu_shares", repeats), resume)
    shares, found = [int(share * MIB) for share in each or EACH], list[Total]()
    with Bench(device, budget, engine) as bench:
        run = Run(bench, journal, end, repeats)
        for math_name in maths or ("tf32",):
            for name in names or NAMES:
                measured = run.measure(kernels(name, math_name, batch), math_name)
                if measured is None:
                    break
                run.call(measured, shares)
                found += totals(measured, shares, run.called)
    journal.note("totals", [asdict(one) for one in found])
    for text in lines(found):
        click.echo(text)


if __name__ == "__main__":
    main()
