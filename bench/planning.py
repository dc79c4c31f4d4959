"""How long plans take to find.

    python -m oocdnn.bench.planning --out result.json

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
from oocdnn.bench.journal import Journal
from oocdnn.bench.provenance import provenance
from oocdnn.perfmodel.cases import Case, cases
from oocdnn.perfmodel.judged import quantile
from oocdnn.perfmodel.profiles import find

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


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--profile", default="h200", show_default=True, help="A name, or a file.")
@click.option("--cases", "count", default=180, show_default=True)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--contexts", default=CONTEXTS, show_default=True, type=click.IntRange(min=1))
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
def main(profile: str, count: int, repeats: int, contexts: int, out: Path | None) -> None:
    journal = Journal(out, provenance("oocdnn.bench.planning", repeats), False)
    searches = [searched(case, find(profile), repeats) for case in cases("cuda:0", count)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OOCDNN_PLANS"] = str(Path(folder) / "plans.sqlite")
        looks = [looked() for _ in range(contexts + 1)][1:]
    for search in searches:
        journal.add("searches", asdict(search))
    for look in looks:
        journal.add("looks", asdict(look))
    click.echo(text_of("searches", [search.seconds for search in searches]))
    click.echo(text_of("plans from the file, with their engines", [look.first for look in looks]))
    click.echo(text_of("plans of the process", [one for look in looks for one in look.later]))


if __name__ == "__main__":
    main()
