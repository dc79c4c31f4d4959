"""What is made of the results of `oocdnn bench` afterwards: the page, tables and pictures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oocdnn.cli.common import plain_errors, value_errors_said

if TYPE_CHECKING:
    from oocdnn.bench.report.timeline import Timeline
    from oocdnn.bench.results import About, Row

TIMELINE = "timeline.json"

_folders = click.argument(
    "folders",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)


def draw(out: Path, rows: "list[Row]", about: "About", timeline: "Timeline | None") -> None:
    """The page of a folder's results, and what was recorded for it."""
    from oocdnn.bench.report import page as pages

    if timeline is not None:
        (out / TIMELINE).write_text(json.dumps(timeline) + "\n", encoding="utf-8")
    (out / "index.html").write_text(pages.page(rows, about, timeline), encoding="utf-8")


def _rows(folders: tuple[Path, ...]) -> "list[Row]":
    from oocdnn.bench.results import read

    with value_errors_said():
        return [row for folder in folders for row in read(folder)]


@click.command()
@_folders
@plain_errors
def page(folders: tuple[Path, ...]) -> None:
    """Draw the page of results again, in each of the folders."""
    from oocdnn.bench.results import read_about, read_json

    for folder in folders:
        rows, recorded = _rows((folder,)), folder / TIMELINE
        with value_errors_said():
            about = read_about(folder)
            timeline = read_json(recorded) if recorded.exists() else None
        draw(folder, rows, about, timeline)


@click.command()
@_folders
@plain_errors
def table(folders: tuple[Path, ...]) -> None:
    """Print results as tables in Markdown."""
    from oocdnn.bench.report.tables import tables

    click.echo("\n".join(tables(_rows(folders))))


@click.command()
@_folders
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path))
@plain_errors
def picture(folders: tuple[Path, ...], out: Path) -> None:
    """Draw the curves of a network, or of the set poster, as one SVG."""
    from oocdnn._page import style
    from oocdnn.bench.report import picture as pictures

    rows = _rows(folders)
    with value_errors_said():
        drawn = pictures.picture(rows, style())
    out.write_text(drawn, encoding="utf-8")
