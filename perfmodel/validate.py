"""Predicted against measured, and how much faster another plan would have been.

    python -m oocdnn.perfmodel validate --cases 150 --regret 24 --out result.json

Operands lie in pinned memory. A call's time is that of the core (`stats.seconds`), as predictions
are; the whole call's stands beside it. The regret of a case is the chosen plan's time over the best
among it, the plans that are predicted to be the best, and random ones, all of them measured.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._mapped import Array
from oocdnn._problem import parse, random_call
from oocdnn.bench.provenance import provenance
from oocdnn.perfmodel.cases import Case, cases


@dataclass
class Measured:
    """One case: what was predicted, and what was."""

    problem: str
    budget: str
    plan: str
    engine: str
    bound: str  # the engine that is predicted to be busy longest
    predicted_seconds: float
    seconds: float  # the core's
    whole_seconds: float  # with what Python does
    estimated_bytes: int  # while searching
    booked_bytes: int  # predicted before the call
    peak_bytes: int  # of the call
    first_seconds: float

    @property
    def error(self) -> float:
        return self.predicted_seconds / self.seconds - 1

    @property
    def bytes_error(self) -> float:
        return self.booked_bytes / max(self.peak_bytes, 1) - 1


@dataclass
class Regret:
    """The times of one case's plans, the chosen first; seconds of each, and as predicted."""

    problem: str
    budget: str
    plans: list[str] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.seconds[0] / min(self.seconds)


def pinned_arrays(seed: int) -> Callable[[tuple[int, ...], npt.DTypeLike], Array]:
    """Arrays in memory that the device reaches fast; a block of random numbers, repeated."""
    block = np.random.default_rng(seed).standard_normal(1 << 20, np.float32)

    def make(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        array = oocdnn.empty(shape, dtype)
        flat, numbers = array.reshape(-1), block.astype(dtype)
        for begin in range(0, flat.size, block.size):
            part = flat[begin : begin + block.size]
            part[...] = numbers[: part.size]
        return array

    return make


def timed(context: oocdnn.Context, call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median seconds of the core, and of the whole call."""
    core, whole = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        whole.append(time.perf_counter() - start)
        core.append(context.stats.seconds)
    return statistics.median(core), statistics.median(whole)


def measure(context: oocdnn.Context, case: Case, repeats: int) -> tuple[Measured, Any]:
    """Also the call, ready for more."""
    call = random_call(parse(case.problem), context, pinned_arrays(0))
    context.release()
    start = time.perf_counter()
    plan = context.plan(case.problem)
    call()
    first = time.perf_counter() - start
    peak = context.stats.peak_device_bytes
    seconds, whole = timed(context, call, repeats)
    busy = plan.seconds_by_engine
    measured = Measured(
        problem=case.problem,
        budget=case.budget,
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
    )
    return measured, call


def regret(
    context: oocdnn.Context, one: Measured, call: Callable[[], Any], best: int, chance: int
) -> Regret:
    """What other plans of the case take. The context follows the last of them afterwards."""
    found = Regret(one.problem, one.budget, [one.plan], [one.predicted_seconds], [one.seconds])
    for candidate in context.candidates(one.problem, best=best, random=chance):
        if candidate["plan"] in found.plans:
            continue
        try:
            context.use_plan(one.problem, candidate["plan"])
            call()
        except (oocdnn.OutOfMemory, oocdnn.Unsupported):
            continue  # its exact bytes are too many, or the engine refuses
        found.plans.append(candidate["plan"])
        found.predicted.append(candidate["predicted_seconds"])
        found.seconds.append(timed(context, call, 2)[0])
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def summary(measured: Sequence[Measured], regrets: Sequence[Regret]) -> dict[str, float]:
    """Medians and 95th percentiles of what was found."""
    found: dict[str, float] = {}
    arithmetic = [one for one in measured if one.bound == "compute"]
    for name, some in (("all", measured), ("bound by arithmetic", arithmetic)):
        if some:
            errors = [abs(one.error) for one in some]
            found[f"{name}: cases"] = len(some)
            found[f"{name}: |error| median"] = statistics.median(errors)
            found[f"{name}: |error| 95th percentile"] = quantile(errors, 0.95)
    if measured:
        found["bytes: |error| worst"] = max(abs(one.bytes_error) for one in measured)
        found["first call worst, s"] = max(one.first_seconds for one in measured)
    if regrets:
        ratios = [one.ratio for one in regrets]
        found["regret: cases"] = len(ratios)
        found["regret: share within 5 %"] = sum(ratio <= 1.05 for ratio in ratios) / len(ratios)
        found["regret: worst"] = max(ratios)
    return found


def line(one: Measured) -> str:
    return (
        f"{one.error:+7.1%} {one.seconds * 1e3:9.3f} ms (whole {one.whole_seconds * 1e3:9.3f}), "
        f"{one.bound}, bytes {one.bytes_error:+.1%}, {one.problem} in {one.budget}: {one.plan}"
    )


def run(
    device: str, chosen: Sequence[Case], regrets: int, repeats: int, seconds: float, plans: int
) -> Iterator[Measured | Regret]:
    """Each case as it is done; those that do not fit are left out."""
    end = time.perf_counter() + seconds
    for budget in sorted({case.budget for case in chosen}):
        with oocdnn.Context(device, budget) as context:
            for case in (case for case in chosen if case.budget == budget):
                if time.perf_counter() > end:
                    return
                try:
                    one, call = measure(context, case, repeats)
                except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
                    click.echo(f"{case.problem} in {case.budget}: {error}")
                    continue
                yield one
                if chosen.index(case) < regrets:
                    yield regret(context, one, call, plans, plans)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="auto", show_default=True)
@click.option("--cases", "count", default=150, show_default=True)
@click.option("--regret", "regrets", default=24, show_default=True, help="Cases of all.")
@click.option("--plans", default=15, show_default=True, help="Best, and random, for each of those.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True)
@click.option("--seconds", default=3600.0, help="Begin no case after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
def validate(
    device: str, count: int, regrets: int, plans: int, repeats: int, seed: int, seconds: float,
    out: Path | None,
) -> None:  # fmt: skip
    with oocdnn.Context(device, "1MiB", profile="none") as context:
        on = context.device
    measured, found = list[Measured](), list[Regret]()
    about = provenance("oocdnn.perfmodel", repeats)
    for one in run(on, cases(on, count, seed), regrets, repeats, seconds, plans):
        if isinstance(one, Measured):
            measured.append(one)
            click.echo(line(one))
        else:
            found.append(one)
            click.echo(f"regret {one.ratio:.3f} among {len(one.seconds)} plans")
        if out is not None:  # a run that is cut off keeps what it has
            document = {
                **about,
                "summary": summary(measured, found),
                "cases": [asdict(each) for each in measured],
                "regrets": [asdict(each) for each in found],
            }
            out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for label, value in summary(measured, found).items():
        click.echo(f"{label}: {value:.4g}")
