"""oocdnn bench training: networks trained within limits, beside other ways to need less memory."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from oocdnn.cli.common import plain_errors, value_errors_said
from oocdnn.cli.limit import checked_lenders

_ARITHMETIC = ("fp32", "tf32", "bf16", "fp16")


@contextmanager
def _growing_segments() -> Iterator[None]:
    """PyTorch reads it where it first allocates on a GPU."""
    name = "PYTORCH_CUDA_ALLOC_CONF"
    if name in os.environ:
        yield
        return
    os.environ[name] = "expandable_segments:True"
    try:
        yield
    finally:
        del os.environ[name]


def _draw_files(files: tuple[Path, ...], page: Path | None, picture: Path | None) -> None:
    """Draws rows that were measured before, on one GPU or several of a kind."""
    from oocdnn._page import style
    from oocdnn.bench.results import read_json
    from oocdnn.bench.training.page import page_of
    from oocdnn.bench.training.picture import picture_of

    rows: list[dict[str, Any]] = []
    commands: dict[str, None] = {}
    for path in files:
        for file in sorted(path.glob("*.json")) if path.is_dir() else (path,):
            with value_errors_said():
                found = read_json(file)
                if not (isinstance(found, dict) and {"rows", "command"} <= found.keys()):
                    raise ValueError(f"{file} holds no rows of `oocdnn bench training --out`")
            rows += found["rows"]
            commands[found["command"]] = None
    if page is not None:
        page.write_text(page_of(rows, "; ".join(commands)), encoding="utf-8")
    if picture is not None:
        with value_errors_said():
            drawn = picture_of(rows, style())
        picture.write_text(drawn, encoding="utf-8")


@click.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--list", "lists", is_flag=True, help="List cases, networks and peers.")
@click.option("--quick", is_flag=True, help="Two small networks, two limits, three peers.")
@click.option("--images", type=click.IntRange(1), help="In a batch.")
@click.option("--size", type=click.IntRange(1), help="Pixels of an axis.")
@click.option("--mode", type=click.Choice(_ARITHMETIC), help="Arithmetic.")
@click.option("--last/--first", default=None, help="Whether channels are last.")
@click.option("--limit", "limits", multiple=True, metavar="B", help="GiB, or 0.5x of the needs.")
@click.option(
    "--borrow", multiple=True, metavar="GPU[=B]", help="Within limits: cuda:1, cuda:1=40GiB."
)
@click.option(
    "--planning", default=2.0, metavar="S", help="Seconds for one plan.", show_default=True
)
@click.option("--peer", "peers", multiple=True, metavar="NAME", help="Another way to train; all.")
@click.option("--compiled", is_flag=True, help="Compiled too, in core and within limits.")
@click.option("--only-peers", is_flag=True, help="No rows within limits.")
@click.option("--profile", is_flag=True, help="Where the time goes, kernel by kernel.")
@click.option("--needs", is_flag=True, help="Look for the least limit at full speed.")
@click.option("--largest", is_flag=True, help="The largest batch within each limit.")
@click.option("--tries", default=3, metavar="N", help="Batches that are tried within a limit.")
@click.option("--activations", is_flag=True, help="The least bytes of activations.")
@click.option("--share", "shares", multiple=True, type=float, metavar="S", help="Of activations.")
@click.option("--steps", default=0, metavar="N", help="Further steps, and what grows in them.")
@click.option("--seconds", default=540.0, metavar="S", help="Nothing is begun after so many.")
@click.option("--device", type=click.Choice(("cuda", "cpu")), default="cuda", show_default=True)
@click.option("--out", metavar="FILE", default="", help="All rows, as JSON.")
@click.option("--page", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--picture",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --rows of one case: time over memory, as SVG.",
)
@click.option(
    "--rows",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, path_type=Path),
    help="Draw what --out left, in files or folders, and measure nothing.",
)
@click.pass_context
@plain_errors
@_growing_segments()
def training(
    context: click.Context,
    /,
    cases: tuple[str, ...],
    lists: bool,
    quick: bool,
    peers: tuple[str, ...],
    shares: tuple[float, ...],
    seconds: float,
    device: str,
    out: str,
    page: Path | None,
    picture: Path | None,
    files: tuple[Path, ...],
    **more: Any,
) -> None:
    """Train networks plainly, within limits, and in the other ways that PyTorch has.

    A line of JSON for each way of training: seconds of a step, images a second, bytes as the driver
    counts them, and whether losses are those of the plain step. On the CPU the bytes of tensors are
    counted, and times are those of the CPU.
    """
    if files:
        if (page is None and picture is None) or cases:
            raise click.UsageError("--rows takes --page or --picture, and no case")
        _draw_files(files, page, picture)
        return
    if picture is not None:
        raise click.UsageError("--picture takes --rows: measure with --out first")
    for name in ("torch", "highspy"):
        if importlib.util.find_spec(name) is None:
            raise click.ClickException(f"{name} is not installed; the extra torch brings it")
    from oocdnn.bench.training import study
    from oocdnn.bench.training.device import device_of
    from oocdnn.bench.training.models import MODELS
    from oocdnn.bench.training.page import page_of
    from oocdnn.bench.training.peers import PEERS
    from oocdnn.bench.training.rows import Rows

    if lists:
        for title, names in (("cases", study.CASES), ("networks", MODELS), ("peers", PEERS)):
            click.echo(f"{title}: {' '.join(names)}")
        return
    checked_lenders(more["borrow"])
    known = tuple(PEERS)
    unknown = [name for name in peers if name not in (*known, "all")]
    if unknown:
        raise click.UsageError(f"there is no peer {unknown[0]}; there are {', '.join(known)}")
    if quick:
        cases, peers = cases or study.QUICK, peers or study.QUICK_PEERS
    more |= {"peers": known if "all" in peers else peers}
    if shares:
        more["shares"] = shares
    wish = study.Wish(**more)
    if quick:
        wish = study.quick(wish)
    made = device_of(device)
    rows = Rows(made, "oocdnn bench training", seconds, out, sys.argv[3:])
    study.measure(made, rows, cases or tuple(study.CASES), wish)
    if page is not None:
        page.write_text(page_of(rows.rows, shlex.join(sys.argv[1:])), encoding="utf-8")
    context.exit(1 if rows.failed else 0)
