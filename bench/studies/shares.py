"""One workspace for all convolutions of a network (µ-cuDNN's WD) against equal shares of it.

    oocdnn bench study shares --out result.json

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

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

import oocdnn
from oocdnn.bench.cases import Case
from oocdnn.bench.studies.divided import HOW, KINDS, MIB, NETWORKS, Bench, kernels
from oocdnn.bench.studies.study import Run, maths, study
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


class Kept:
    """What a run has measured, and an earlier one."""

    def __init__(self, run: Run, bench: Bench, repeats: int) -> None:
        self._run, self._bench, self._repeats = run, bench, repeats
        self.measured = [_measured(fields) for fields in run.rows("measured")]
        self.called = [Called(**fields) for fields in run.rows("called")]

    def measure(self, cases: Sequence[Case], math_name: str) -> list[Measured] | None:
        """The ways of every kernel; None where time does not suffice."""
        known = {(one.set, one.problem): one for one in self.measured}
        for case in self._run.left(cases, lambda case: (case.set, case.problem), known):
            began = time.perf_counter()
            found = ways(self._bench.free, case.problem)
            took = time.perf_counter() - began
            one = Measured(case.set, case.layer, case.times, case.problem, math_name, found, took)
            known[case.set, case.problem] = one
            self.measured.append(one)
            text = f"{case.set} {case.layer} {case.problem}: {len(found)} ways, {took:.1f} s"
            self._run.keep(asdict(one), text, to="measured")
        found_all = [known.get((case.set, case.problem)) for case in cases]
        return [one for one in found_all if one is not None] if None not in found_all else None

    def call(self, measured: Sequence[Measured], each: Sequence[int]) -> None:
        """Every share that is wanted and not known yet, as far as time suffices."""
        known = {(one.problem, one.workspace) for one in self.called}
        for problem, shares in wanted(measured, each).items():
            missing = [share for share in shares if (problem, share) not in known]
            if self._run.late or not missing:
                continue
            for one in calls(self._bench, problem, missing, self._repeats):
                self.called.append(one)
                self._run.keep(asdict(one), called_line(one), to="called")


def _measured(fields: dict[str, Any]) -> Measured:
    return Measured(**{**fields, "ways": [Way(**way) for way in fields["ways"]]})


sets = click.option("--set", "names", multiple=True, type=click.Choice(NETWORKS))
each = click.option("--each", multiple=True, type=float, help="MiB for each kernel; repeatable.")


@study("shares", *HOW, sets, each, maths(KINDS), repeats=10, on="gpu")
def command(
    run: Run, device: str, budget: str, engine: str, names: Sequence[str], each: Sequence[float],
    maths: Sequence[str], batch: int | None, repeats: int,
) -> None:  # fmt: skip
    shares, found = [int(share * MIB) for share in each or EACH], list[Total]()
    with Bench(device, budget, engine) as bench:
        kept = Kept(run, bench, repeats)
        for math_name in maths or ("tf32",):
            for name in names or NAMES:
                measured = kept.measure(kernels(name, math_name, batch), math_name)
                if measured is None:
                    break
                kept.call(measured, shares)
                found += totals(measured, shares, kept.called)
    run.note("totals", [asdict(one) for one in found])
    run.say(*lines(found))
