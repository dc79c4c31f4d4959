"""How long plans take to find.

    oocdnn bench study planning --out result.json

Searches are timed by the core, for the cases that the performance model is judged on, with the
profile of a machine that need not be this one. Then what a call on the CPU device takes to look for
its plan: the first of a new context, for which an earlier one searched (so the plan comes from the
file, and its engine is prepared), and later ones.
"""

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np

import oocdnn
from oocdnn.bench.studies.study import Run, study
from oocdnn.perfmodel.cases import Case, cases
from oocdnn.perfmodel.profiles import find
from oocdnn.perfmodel.validation import quantile

CONTEXTS, CALLS = 20, 100


@dataclass(frozen=True)
class Searched:
    """A search, and its seconds."""

    problem: str
    budget: str
    seconds: float


@dataclass(frozen=True)
class Looked:
    """Seconds of the calls of one context that looked for a plan: the first, and the others."""

    first: float
    later: list[float]


def searched(case: Case, profile: Path, repeats: int) -> Searched:
    """The fastest of a few searches."""
    plans = [oocdnn.plan_for_profile(case.problem, profile, case.budget) for _ in range(repeats)]
    return Searched(case.problem, case.budget, min(plan.search_seconds for plan in plans))


def looked() -> Looked:
    """Calls of one new context."""
    x, w = np.ones((8, 16, 28, 28), np.float32), np.ones((16, 16, 3, 3), np.float32)
    seconds = []
    with oocdnn.Context("cpu", "1MiB", engine="direct", profile="none") as context:
        for _ in range(CALLS):
            context.conv2d(x, w, padding=1)
            seconds.append(context.stats.planning_seconds)
    return Looked(seconds[0], seconds[1:])


def text_of(name: str, seconds: list[float]) -> str:
    return (
        f"{name}: {len(seconds)}, median {median(seconds) * 1e6:.1f} us, "
        f"95th percentile {quantile(seconds, 0.95) * 1e6:.1f}, worst {max(seconds) * 1e6:.1f}"
    )


OPTIONS = (
    click.option("--profile", default="h200", show_default=True, help="A name, or a file."),
    click.option("--cases", "count", default=180, show_default=True),
    click.option("--contexts", default=CONTEXTS, show_default=True, type=click.IntRange(min=1)),
)


@study("planning", *OPTIONS, repeats=3)
def command(run: Run, profile: str, count: int, contexts: int, repeats: int) -> None:
    file, done = find(profile), {(row["problem"], row["budget"]) for row in run.rows("searches")}
    for case in run.left(cases("cuda:0", count), lambda one: (one.problem, one.budget), done):
        run.keep(asdict(searched(case, file, repeats)), to="searches")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OOCDNN_PLANS"] = str(Path(folder) / "plans.sqlite")
        looked()
        for _ in run.left(range(contexts), int, range(len(run.rows("looks")))):
            run.keep(asdict(looked()), to="looks")
    searches, looks = run.rows("searches"), run.rows("looks")
    run.say(
        text_of("searches", [row["seconds"] for row in searches]),
        text_of("plans from the file, with their engines", [row["first"] for row in looks]),
        text_of("plans of the process", [one for row in looks for one in row["later"]]),
    )
