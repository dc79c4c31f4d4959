"""oocdnn demo: a photograph through a bank of edge filters with an eighth of the memory."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from PIL import Image

from oocdnn._arrays.mapped import Array
from oocdnn._shown import bytes_text
from oocdnn.cli import picture, timeline
from oocdnn.cli.common import (
    console,
    device_option,
    free_host_bytes,
    plain_errors,
    progress_bar,
    seconds_text,
)
from oocdnn.cli.plan import table
from oocdnn.context import Context, Stats

_PIXELS = 12_000_000
_LEAST_DATA = 256 * 2**20
_SHARE = 8  # the budget is this part of the data
_SHOWN = 2000  # pixels on the longer side of the pictures

# Bytes of x, w, y for each pixel: 3 channels in, 64 out.
_BYTES_PER_PIXEL = 4 * (3 + picture.FILTERS)


@dataclass
class Outcome:
    """One way of computing the answers."""

    y: Array
    stats: Stats
    seconds: float


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for the pictures and figures.",
)
@click.option(
    "--image",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A photograph of your own.",
)
@click.option(
    "--megapixels", type=click.FloatRange(min=0.1), help="Size of the enlarged photograph [12]."
)
@device_option
@plain_errors
def demo(out: Path, image: Path | None, megapixels: float | None, device: str | None) -> None:
    """Filter a photograph within an eighth of the memory, and compare with the whole."""
    say = console().print
    out.mkdir(parents=True, exist_ok=True)
    photo, name = picture.photograph(image)
    enlarged = picture.resized(photo, _pixels(photo.width * photo.height, megapixels))
    say(
        f"photograph: {name}, {photo.width} x {photo.height}, resized to {enlarged.width} x "
        f"{enlarged.height} ({enlarged.width * enlarged.height / 1e6:.1f} megapixels)"
    )
    x = picture.tensor(enlarged)
    w, b = picture.filter_bank()
    shape = (1, len(w), *x.shape[2:])
    data = x.nbytes + w.nbytes + b.nbytes + 4 * int(np.prod(shape))
    budget = data // _SHARE
    problem = (
        f"conv2d:fwd x{'x'.join(map(str, x.shape))} w{'x'.join(map(str, w.shape))} pad3 +bias +relu"
    )
    with Context(device, budget, trace=True) as context:
        made = context.plan(problem)
        say(table(made))
        tiled = _measure(context, x, w, b, shape, "tiled")
        trace = context.take_trace()
        device_name = json.loads(context.info())["device"]
    # All of the data, some room for copies in other layouts, and workspace.
    with Context(device, 3 * data) as context:
        context.plan(problem)
        whole = _measure(context, x, w, b, shape, "whole")
    difference = _largest_difference(tiled.y, whole.y)
    moved = tiled.stats.bytes_h2d + tiled.stats.bytes_d2h
    _write_pictures(out, enlarged, tiled.y)
    (out / "trace.json").write_text(trace, encoding="utf-8")
    title = f"{made.problem}   {tiled.stats.tiles} tiles"
    timeline.draw(trace, title, budget, out / "timeline.png")
    figures = {
        "device": device_name,
        "problem": problem,
        "data_bytes": data,
        "budget_bytes": budget,
        "peak_device_bytes": tiled.stats.peak_device_bytes,
        "tiles": tiled.stats.tiles,
        "bytes_moved": moved,
        "seconds": tiled.seconds,
        "seconds_whole": whole.seconds,
        "tiles_whole": whole.stats.tiles,
        "peak_device_bytes_whole": whole.stats.peak_device_bytes,
        "max_abs_difference": difference,
        "engine": tiled.stats.engine,
    }
    (out / "demo.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    say(f"data     {bytes_text(data)} (x, w, b, y)")
    say(f"budget   {bytes_text(budget)}, measured peak {bytes_text(tiled.stats.peak_device_bytes)}")
    say(f"moved    {bytes_text(moved)} at {moved / tiled.seconds / 1e9:.1f} GB/s")
    say(f"tiled    {seconds_text(tiled.seconds)} in {_tiles(tiled.stats)}")
    say(
        f"whole    {seconds_text(whole.seconds)} in {_tiles(whole.stats)}, with "
        f"{bytes_text(whole.stats.peak_device_bytes)}"
    )
    say(f"largest absolute difference {difference:.3g}")
    say(f"written to {out}: before.png after.png timeline.png trace.json demo.json")
    call = f'oocdnn.Context(budget={budget}).conv2d(x, w, b, padding=3, activation="relu")'
    say(f"your turn: y = {call}", markup=False)


def _pixels(have: int, megapixels: float | None) -> int:
    """How large the photograph is made: as asked, else about 12 megapixels or what fits."""
    if megapixels is not None:
        return max(int(megapixels * 1e6), _LEAST_DATA // _BYTES_PER_PIXEL)
    # The answers twice, the whole device copy and what the engines add to it.
    room = free_host_bytes() // (5 * _BYTES_PER_PIXEL)
    least = _LEAST_DATA // _BYTES_PER_PIXEL + 1
    if room < least:
        raise click.ClickException(
            f"the demo needs {bytes_text(5 * _LEAST_DATA)} of free memory, and there are "
            f"{bytes_text(free_host_bytes())}"
        )
    return max(min(max(have, _PIXELS), _PIXELS * 2, room), least)


def _measure(
    context: Context, x: Array, w: Array, b: Array, shape: tuple[int, ...], title: str
) -> Outcome:
    """One call into memory that was touched before, so that only the call is timed."""
    y = np.empty(shape, np.float32)
    y.fill(0)
    with progress_bar(title) as progress:
        begin = time.perf_counter()
        context.conv2d(x, w, b, padding=3, activation="relu", out=y, progress=progress)
        seconds = time.perf_counter() - begin
    return Outcome(y, context.stats, seconds)


def _tiles(stats: Stats) -> str:
    return f"{stats.tiles} tile{'s' if stats.tiles != 1 else ''}"


def _largest_difference(a: Array, b: Array) -> float:
    """Plane by plane, so that no third tensor is needed."""
    return max(float(np.abs(p - q).max()) for p, q in zip(a[0], b[0], strict=True))


def _write_pictures(out: Path, image: Image.Image, y: Array) -> None:
    before = image.copy()
    before.thumbnail((_SHOWN, _SHOWN))
    before.save(out / "before.png")
    picture.composite(y, _SHOWN).save(out / "after.png")
