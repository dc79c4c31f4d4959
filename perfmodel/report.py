"""A validation as a table for people, and its drawings.

python -m oocdnn.perfmodel report result.json --out FOLDER
"""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from oocdnn.perfmodel import plots
from oocdnn.perfmodel.validation import WITHIN, Measured, Regret, groups, quantile, validated


def line(one: Measured) -> str:
    return (
        f"{one.error:+7.1%} {one.seconds * 1e3:9.3f} ms (whole {one.whole_seconds * 1e3:9.3f}), "
        f"{one.bound}, bytes {one.bytes_error:+.1%}, {one.problem} in {one.budget}: {one.plan}"
    )


def regret_line(one: Regret) -> str:
    return (
        f"regret {one.ratio:.3f} among {len(one.seconds)} plans, {one.problem} in {one.budget}: "
        f"{one.plans[0]}, best {one.best}"
    )


def table(head: Mapping[str, Any], measured: Sequence[Measured], found: Sequence[Regret]) -> str:
    """What was measured where, sums, and every case, the worst first."""
    machine = head.get("machine", {})
    lines = [
        f"# {head.get('command')}",
        f"# {head.get('date')}, {machine.get('processor')}, commit {head.get('commit')}",
        "# predicted / measured - 1; bytes: booked by the plan / taken by the call - 1",
        *(f"# {text}" for text in sums(measured, found)),
        "",
        *(line(one) for one in sorted(measured, key=lambda one: -abs(one.error))),
        "",
        *(regret_line(one) for one in sorted(found, key=lambda one: -one.ratio)),
    ]
    return "\n".join(lines) + "\n"


def sums(measured: Sequence[Measured], found: Sequence[Regret]) -> Iterator[str]:
    """A line for each group of cases, for bytes and for regrets."""
    for name, some in groups(measured).items():
        errors = [abs(one.error) for one in some]
        yield (
            f"{name}: {len(some)} cases, |error| median {statistics.median(errors):.1%}, 95th "
            f"percentile {quantile(errors, 0.95):.1%}, worst {max(errors):.1%}"
        )
    if measured:
        worst = max(abs(one.bytes_error) for one in measured)
        first = max(one.first_seconds for one in measured)
        yield f"bytes: worst {worst:.1%}; first calls: {first:.2f} s at worst"
    if found:
        within = sum(one.ratio <= WITHIN for one in found)
        worst_regret = max(found, key=lambda one: one.ratio)
        yield f"regret: {within} of {len(found)} within {WITHIN - 1:.0%}; worst: " + regret_line(
            worst_regret
        )


def write(
    folder: Path, head: Mapping[str, Any], measured: Sequence[Measured], found: Sequence[Regret]
) -> list[Path]:
    """The table and, of what there is, the drawings. Returns the files."""
    texts = {"table.txt": table(head, measured, found)}
    if measured:
        texts["predicted.svg"] = plots.predicted(measured)
        texts["errors.svg"] = plots.errors(measured)
    if found:
        texts["regret.svg"] = plots.regrets(found)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("result", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def report(result: Path, out: Path) -> None:
    found = json.loads(result.read_text(encoding="utf-8"))
    lists = found["lists"]
    measured, regrets = validated(lists.get("cases", []), lists.get("regrets", []))
    for file in write(out, found, measured, regrets):
        click.echo(str(file))
