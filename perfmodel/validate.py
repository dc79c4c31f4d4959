"""Predicted against measured, and how much faster another plan would have been.

    python -m oocdnn.perfmodel validate --out result.json
    python -m oocdnn.perfmodel report result.json --out FOLDER

Host operands lie in pinned memory. A call's time is that of the core (`stats.seconds`), as
predictions are; the whole call's stands beside it. Where all operands are on the device it is that
of the device's clock, as such calls return before they are done. The regret of a case is the chosen
plan's time over the best among it, the plans that are predicted to be the best, and random ones
that are not predicted to be many times slower, all of them measured; the fastest is measured again,
in turns with the chosen one, so that what was fast by chance does not count.

On an H200 a case should take one to two seconds, and a regret five to ten. `--cases 180 --regret 0`
and `--cases 0 --regret 24` are the two parts; with `--seconds` a run stops in time, and with
`--resume` another goes on.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

import oocdnn
from oocdnn.bench.gpu.memory import Gpu, ordinal_of
from oocdnn.bench.journal import Journal
from oocdnn.bench.provenance import provenance
from oocdnn.bench.studies.study import Run
from oocdnn.cli.problems import parse, random_call
from oocdnn.perfmodel.cases import Case, cases
from oocdnn.perfmodel.report import line, regret_line, sums, write
from oocdnn.perfmodel.runs import PinnedPool, Timer, place
from oocdnn.perfmodel.validation import Measured, Regret, summary, validated
from oocdnn.plans import RunnerUp

TURNS = 2  # in which the fastest and the chosen plan are measured again
SLOWER = 1.5  # than the best so far: measured no more than once
LONG = 1.0  # seconds of a call that is measured no more than once
# Plans at random take up to thousands of times as long as the chosen one, by prediction.
DRAWN = 300  # of which those are taken that should take no longer than so many times:
HOPELESS = 8.0
PATIENCE = 60.0  # seconds of a regret, after which no more plans are looked at
One = TypeVar("One")


class Bench:
    """Measures cases on one device, on contexts that last. A context manager."""

    def __init__(self, device: str, repeats: int) -> None:
        self._repeats, self._contexts = repeats, dict[str, oocdnn.Context]()
        self._open, self._device = ExitStack(), device
        gpu = device.startswith("cuda")
        self._gpu = Gpu(ordinal_of(device)) if gpu else None
        self._time, self._pool = Timer(self._gpu), PinnedPool(0)

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _context(self, budget: str) -> oocdnn.Context:
        if budget not in self._contexts:
            made = oocdnn.Context(self._device, budget)
            self._contexts[budget] = self._open.enter_context(made)
        return self._contexts[budget]

    def _call(self, case: Case) -> tuple[oocdnn.Context, partial[Any]]:
        """The context of the case, which holds nothing, and its call."""
        for context in self._contexts.values():
            context.release()
        context = self._context(case.budget)
        self._pool.begin()
        with context:
            call = random_call(parse(case.problem), context, self._pool)
        if self._gpu is not None:
            call = place(call, case.problem, self._gpu)
        return context, call

    def measure(self, case: Case) -> Measured:
        """Raises OutOfMemory and Unsupported where the case does not fit."""
        began = time.perf_counter()
        context, call = self._call(case)
        start = time.perf_counter()
        plan = context.plan(case.placed)
        call()
        first = time.perf_counter() - start
        peak = context.stats.peak_device_bytes
        seconds, whole = self._time(context, call, self._repeats, case.placement == "device")
        busy = plan.seconds_by_engine
        return Measured(
            problem=case.problem,
            budget=case.budget,
            placement=case.placement,
            plan=plan.plan,
            engine=plan.engine,
            bound=max(busy, key=lambda engine: busy[engine]),
            predicted_seconds=plan.predicted_seconds,
            seconds=seconds,
            whole_seconds=whole,
            estimated_bytes=plan.estimated_bytes,
            booked_bytes=plan.booked_bytes,
            peak_bytes=peak,
            first_seconds=first,
            took=time.perf_counter() - began,
        )

    def regret(self, case: Case, plans: int) -> Regret:
        """What the case's plan takes, and so many others of the best by prediction and at random.
        The context follows one of them afterwards."""
        began = time.perf_counter()
        context, call = self._call(case)
        plan = context.plan(case.placed)
        rival = Rivals(self._time, context, case, call, self._repeats)
        rival.measure(plan.plan, plan.predicted_seconds, given=True)
        for other in [
            *context.candidates(case.placed, best=plans, random=0),
            *self._drawn(context, case, plans, HOPELESS * plan.predicted_seconds),
        ]:
            if time.perf_counter() - began > PATIENCE:
                break
            rival.measure(other["plan"], other["predicted_seconds"])
        rival.finals()
        rival.found.took = time.perf_counter() - began
        return rival.found

    @staticmethod
    def _drawn(context: oocdnn.Context, case: Case, count: int, most: float) -> list[RunnerUp]:
        """So many plans at random of those that are predicted to take no longer than `most`."""
        drawn = context.candidates(case.placed, best=0, random=DRAWN)
        return [one for one in drawn if one["predicted_seconds"] <= most][:count]


class Rivals:
    """Plans of one case, measured one after the other; the first is the chosen one."""

    def __init__(
        self, timer: Timer, context: oocdnn.Context, case: Case, call: partial[Any], repeats: int
    ) -> None:
        self._time, self._context, self._case, self._call = timer, context, case, call
        self._repeats = repeats
        self.found = Regret(case.problem, case.budget, case.placement)

    def _seconds(self, repeats: int) -> float:
        in_core = self._case.placement == "device"
        return self._time(self._context, self._call, repeats, in_core)[0]

    def measure(self, plan: str, predicted: float, given: bool = False) -> None:
        """What a plan takes that was not measured yet. `given`: calls follow it already. Leaves out
        what cannot be had: its exact bytes are too many, or the engine refuses."""
        found = self.found
        if plan in found.plans:
            return
        try:
            if not given:
                self._context.use_plan(self._case.placed, plan)
            self._call()
        except (oocdnn.OutOfMemory, oocdnn.Unsupported):
            return
        seconds = self._seconds(1)
        if seconds < min([LONG, *(SLOWER * other for other in found.seconds)]):
            seconds = self._seconds(self._repeats)
        found.plans.append(plan)
        found.predicted.append(predicted)
        found.seconds.append(seconds)

    def _again(self, number: int) -> float:
        """One of the plans once more."""
        self._context.use_plan(self._case.placed, self.found.plans[number])
        self._call()
        return self._seconds(self._repeats)

    def finals(self) -> None:
        """Measures the fastest again, in turns with the chosen one, until what is the fastest was
        measured so."""
        seconds, settled = self.found.seconds, {0}
        while (best := seconds.index(min(seconds))) not in settled:
            settled.add(best)
            turns = [(self._again(0), self._again(best)) for _ in range(TURNS)]
            seconds[0], seconds[best] = (min(times) for times in zip(*turns, strict=True))


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="auto", show_default=True)
@click.option("--cases", "count", default=180, show_default=True)
@click.option("--regret", "regrets", default=24, show_default=True, help="The first so many cases.")
@click.option("--plans", default=15, show_default=True, help="Best, and random, for each of those.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True)
@click.option("--seconds", default=3600.0, help="Begin no case after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
@click.option("--report", "folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--resume", is_flag=True, help="Go on with what --out holds already.")
def validate(
    device: str, count: int, regrets: int, plans: int, repeats: int, seed: int, seconds: float,
    out: Path | None, folder: Path | None, resume: bool,
) -> None:  # fmt: skip
    end = time.perf_counter() + seconds
    with oocdnn.Context(device, "1MiB", profile="none") as context:
        on = context.device
    head = provenance("python -m oocdnn.perfmodel", repeats)
    journal = Journal(out, head, resume)
    run = Run(journal, end)
    chosen = cases(on, max(count, regrets), seed)
    with Bench(on, repeats) as bench:
        for case in missing(run, chosen[:count], "cases"):
            one = attempt(case, partial(bench.measure, case))
            if one is not None:
                run.keep(asdict(one), line(one), to="cases")
                run.note("summary", summed(journal))
        for case in missing(run, chosen[:regrets], "regrets"):
            other = attempt(case, partial(bench.regret, case, plans))
            if other is not None:
                run.keep(asdict(other), regret_line(other), to="regrets")
                run.note("summary", summed(journal))
    found = validated(journal.rows("cases"), journal.rows("regrets"))
    for text in sums(*found):
        click.echo(text)
    if folder is not None:
        write(folder, head, *found)


def missing(run: Run, chosen: Sequence[Case], name: str) -> Iterator[Case]:
    """Those that are not in that list yet, until time is up."""
    known = {(row["problem"], row["budget"]) for row in run.rows(name)}
    return run.left(chosen, lambda case: (case.problem, case.budget), known)


def attempt(case: Case, work: Callable[[], One]) -> One | None:
    """What the work gives; says why where the case does not fit."""
    try:
        return work()
    except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
        click.echo(f"{case.problem} in {case.budget}: {error}")
        return None


def summed(journal: Journal) -> dict[str, float]:
    return summary(*validated(journal.rows("cases"), journal.rows("regrets")))
