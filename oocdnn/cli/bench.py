"""oocdnn bench: what out-of-core convolutions cost here, beside what else would compute them."""

import math
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from oocdnn.cli.common import (
    budget_option,
    console,
    device_option,
    plain_errors,
    problem_text,
    progress_bar,
    seconds_text,
    value_errors_said,
)
from oocdnn.cli.results import draw, page, picture, table
from oocdnn.cli.study import study
from oocdnn.cli.training import training

if TYPE_CHECKING:
    from oocdnn.bench.cases import Case
    from oocdnn.bench.results import Row
    from oocdnn.bench.suite import Bench


class _RunByDefault(click.Group):
    """A group in which `run` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunByDefault)
def bench() -> None:
    """Measure convolutions beside what else would compute them.

    \b
      oocdnn bench --set vgg16 --quick --out DIR
      oocdnn bench "conv2d:fwd x8x64x224x224 w64x64x3x3 pad1 f32" --budget 64MiB
      oocdnn bench check --set resnet50
      oocdnn bench compare BEFORE AFTER
      oocdnn bench study floor --out FILE

    Without a command it is `run`.
    """


def _which(command: Any) -> Any:
    """The options that say which problems."""
    options = (
        click.argument("problem", nargs=-1),
        click.option("--set", "sets", multiple=True, metavar="S", help="See `list`; repeatable."),
        click.option(
            "--direction",
            "directions",
            multiple=True,
            type=click.Choice(("fwd", "bwd_data", "bwd_filter")),
            help="Those of the set, without it; repeatable.",
        ),
        click.option(
            "--words",
            multiple=True,
            default=("f32",),
            show_default=True,
            help='Type and layout, as problems are written: "f32/tf32 nhwc"; repeatable.',
        ),
        click.option("--batch", type=click.IntRange(min=1), help="Images, in place of the set's."),
        click.option(
            "--only", multiple=True, metavar="T", help="What contains T; repeatable, in that order."
        ),
        click.option("--shuffle", is_flag=True, help="In an order by lot, always the same."),
        click.option("--quick", is_flag=True, help="Fewer images and calls."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _how(command: Any) -> Any:
    """The options that say where and with what."""
    options = (
        device_option,
        budget_option,
        click.option(
            "--placement",
            type=click.Choice(("pageable", "pinned")),
            default="pageable",
            show_default=True,
            help="The memory of the arrays.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _cases(
    device: str | None,
    problem: tuple[str, ...],
    sets: tuple[str, ...],
    directions: tuple[Any, ...],
    words: tuple[str, ...],
    batch: int | None,
    only: tuple[str, ...],
    shuffle: bool,
    quick: bool,
) -> "list[Case]":
    from oocdnn.bench import suite
    from oocdnn.bench.cases import SETS, cases_of

    if problem and sets:
        raise click.UsageError("give a problem or --set, not both")
    if problem:
        return [suite.case_of(problem_text(problem), device)]
    if unknown := [name for name in sets if name not in SETS]:
        known = ", ".join(SETS)
        raise click.UsageError(f"there is no set {', '.join(unknown)}; there are {known}")
    lists = [cases_of(sets or ("vgg16",), directions, one, batch, quick) for one in words]
    cases = [case for alike in zip(*lists, strict=True) for case in alike]
    wanted = only or ("",)
    chosen = list(dict.fromkeys(one for text in wanted for one in cases if text in _label(one)))
    if not chosen:
        raise click.UsageError(f"no problem contains {' or '.join(only)}")
    if shuffle:
        Random(0).shuffle(chosen)
    return chosen


def _label(case: "Case") -> str:
    return f"{case.set} {case.layer} {case.problem}"


def _table(title: str, columns: tuple[str, ...], words: int) -> Table:
    """A table whose first `words` columns hold words, and the others numbers."""
    made = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < words else "right", overflow="fold")
    return made


def _line(row: "Row") -> str:
    """A result on one line."""
    name = row["layer"] or row["problem"]
    direction = row["problem"].partition(":")[2].partition(" ")[0] if row["layer"] else ""
    head = f"{name:<24} {direction:<10} {row['who']:<14}"
    if row["seconds"] is None:
        cold = "" if row["cold_seconds"] is None else f"once {seconds_text(row['cold_seconds'])}, "
        return f"{head} {cold}{row['check']}"
    floor = row["floor_seconds"]
    ratio = f"{row['seconds'] / floor:6.2f} x floor" if floor else ""
    tiles = f"{row['tiles']} tiles" if row["tiles"] else ""
    noise = "once" if row["noise"] is None else f"±{row['noise'] * 100:.1f} %"
    time = seconds_text(row["seconds"])
    return f"{head} {time:>9} {noise:>8} {ratio:<15} {tiles:<11} {row['check']}"


def _measured(
    made: "Bench",
    cases: "list[Case]",
    rows: "list[Row]",
    keep: "Callable[[list[Row]], None]",
    until: float,
) -> "list[Row]":
    """`rows` and those of all cases, each printed as it comes; `keep` gets all after each case.
    After that time no case begins."""
    both = sys.stdout.isatty()  # else lines would be taken from a file to the bar's terminal
    with progress_bar("measuring", "problems") if both else nullcontext(_nothing) as progress:
        for done, case in enumerate(cases):
            progress(done, len(cases))
            if time.monotonic() > until:
                click.echo(f"{len(cases) - done} problems are left: the time is over")
                break
            rows[:] = [row for row in rows if _key(row) != (case.set, case.problem)]
            for row in made.rows(case):
                rows.append(row)
                click.echo(_line(row))
            keep(rows)
    return rows


def _key(row: "Row") -> tuple[str, str]:
    return row["set"], row["problem"]


def _nothing(done: int, total: int) -> None:
    """Where there is no terminal."""


def _made(device: str | None, budget: str | None, placement: str, **more: Any) -> "Bench":
    from oocdnn.bench import suite

    return suite.Bench(suite.Settings(device, budget, placement == "pinned", **more))


def _fail_where_wrong(rows: "list[Row]") -> None:
    from oocdnn.bench.results import verdict

    counts = dict.fromkeys(("pass", "fail", "mistrusted", "skipped"), 0)
    for row in rows:
        counts[verdict(row)] += 1
    click.echo(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    if counts["fail"]:
        raise click.ClickException(f"{counts['fail']} results are wrong")
    if rows and counts["skipped"] == len(rows):
        why = rows[0]["check"].partition(": ")[2]
        raise click.ClickException(f"nothing was computed: {why}")


def _say_where_floors_are_wrong(bench: "Bench") -> None:
    """Nothing of ours is faster than its floor, where the rates are true that the floor is of."""
    if bench.floors_anew:
        click.echo(
            f"{bench.floors_anew} took less than their floor by this machine's profile, so their "
            "rates were measured anew; if the profile was measured while other work went on, "
            "delete the file that `oocdnn calibrate` names, and calibrate again"
        )


bench.add_command(study)
bench.add_command(training)
for command in (table, picture, page):
    bench.add_command(command)

seconds_option = click.option(
    "--seconds", default=math.inf, help="Begin no problem, and nobody else's turn, after so many."
)


@bench.command()
@_which
@_how
@click.option(
    "--peer", "peers", multiple=True, metavar="P", help="Who else; none: nobody; repeatable."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for results.jsonl, about.json and index.html.",
)
@click.option("--resume", is_flag=True, help="Go on with what --out holds already.")
@seconds_option
@click.option("--warm", type=float, help="Seconds of warm calls, about; without it 2, or 0.3.")
@plain_errors
def run(
    device: str | None,
    budget: str | None,
    placement: str,
    peers: tuple[str, ...],
    out: Path | None,
    resume: bool,
    seconds: float,
    warm: float | None,
    quick: bool,
    **which: Any,
) -> None:
    """Time problems, and check their results."""
    from oocdnn.bench import results, suite

    until = time.monotonic() + seconds
    cases = _cases(device, quick=quick, **which)
    if unknown := set(peers) - {*suite.ALL_PEERS, "none"}:
        raise click.UsageError(
            f"there is no peer {', '.join(unknown)}; there are {', '.join(suite.ALL_PEERS)}"
        )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    wanted = tuple(peer for peer in peers if peer != "none") if peers else None
    patience = suite.QUICK if quick else suite.PATIENT
    if warm is not None:
        patience = replace(patience, seconds=warm)
    made = _made(device, budget, placement, peers=wanted, patience=patience, until=until)
    made.about["command"] = shlex.join(["oocdnn", *map(_without_folder(out), sys.argv[1:])])
    made.about["rates"] = suite.rates(made.first, cases[0].problem)
    for name, rate in made.about["rates"].items():
        click.echo(f"{name}: {rate / 1e9:.1f} G/s")
    before = _kept(out) if resume and out is not None else []
    cut = {_key(row) for row in before if row["check"] == suite.NO_TIME}
    known = {_key(row) for row in before} - cut
    left = [case for case in cases if (case.set, case.problem) not in known]

    def keep(rows: "list[Row]") -> None:
        if out is not None:
            results.write(out, made.about, rows)

    rows = _measured(made, left, before, keep, until)
    if out is not None:
        keep(rows)
        draw(out, rows, made.about, suite.timeline(rows))
        click.echo(f"written to {out}: {results.FILE} {results.ABOUT} index.html")
    _say_where_floors_are_wrong(made)
    _fail_where_wrong(rows)


def _without_folder(out: Path | None) -> Callable[[str], str]:
    """An argument as others can repeat it: the folder by its name alone."""
    return lambda argument: out.name if out is not None and argument == str(out) else argument


def _kept(out: Path) -> "list[Row]":
    """What an earlier run has left there."""
    from oocdnn.bench import results

    if not (out / results.FILE).exists():
        return []
    with value_errors_said():
        return results.read(out)


@bench.command()
@_which
@_how
@seconds_option
@plain_errors
def check(
    device: str | None, budget: str | None, placement: str, seconds: float, **which: Any
) -> None:
    """Run problems once and hold their results to exact sums."""
    from oocdnn.bench import suite

    until = time.monotonic() + seconds
    cases = _cases(device, **which)
    made = _made(device, budget, placement, peers=(), patience=suite.ONCE)
    _fail_where_wrong(_measured(made, cases, [], lambda rows: None, until))


@bench.command("list")
@_which
@plain_errors
def list_problems(**which: Any) -> None:
    """Print the sets, or the problems of those that are named."""
    from oocdnn.bench.cases import SETS

    if not which["sets"] and not which["problem"]:
        table = _table("sets", ("set", "what", "problems", "directions"), 2)
        for one in SETS.values():
            table.add_row(one.name, one.about, str(one.count), " ".join(one.directions))
        console().print(table)
        return
    for case in _cases(None, **which):
        click.echo(case.problem)


@bench.command()
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
@plain_errors
def compare(before: Path, after: Path) -> None:
    """Say what changed between two results: folders, or files of JSON lines."""
    from oocdnn.bench.report.compare import changes, in_one_only, left_out
    from oocdnn.bench.results import read

    with value_errors_said():
        old, new = read(before), read(after)
    table = _table("after / before", ("problem", "who", "outcome", "ratio", "95 %"), 3)
    for change in changes(old, new):
        row = change.after
        span = f"{change.low:.3f} to {change.high:.3f}"
        table.add_row(row["problem"], row["who"], change.outcome, f"{change.ratio:.3f}", span)
    console().print(table)
    for verdicts, count in left_out(old, new).items():
        click.echo(f"not compared: {count} results, {verdicts}")
    for name, rows in zip((before, after), in_one_only(old, new), strict=True):
        if rows:
            click.echo(f"only in {name}: {len(rows)} results")
