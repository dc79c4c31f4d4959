"""Rows of one trained network as one SVG file for a README: time over memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from oocdnn._page import PALETTE, line, text, word
from oocdnn.bench.report.picture import TOP, WIDTH, entry, standalone

Row = dict[str, Any]

_HEIGHT, _LEFT = 300, 72  # pixels: of the drawing, and left of it
_SLOWEST = 2.0  # times the plain step's time; slower rows are named below
_STEP = 0.25  # between two lines
_TICKS = 5
_NAMES = {  # in the order of their colours
    "limit": "oocdnn.torch.memory_limit",
    "plain": "PyTorch",
    "accumulate": "accumulation",
    "checkpoint": "checkpoint of each block",
    "save-on-cpu": "save_on_cpu",
}


def picture_of(rows: Sequence[Row], style: str) -> str:
    """Time of a step over the plain step's time, by the memory that the driver counts.

    Args:
        rows: Of one case, the plain step's with them.
        style: That of the page.

    Raises:
        ValueError: There is no plain step, or more than one case.
    """
    timed = [row for row in rows if row.get("seconds")]
    cases = {row["case"] for row in timed}
    if len(cases) != 1 or not any(row["way"] == "plain" for row in timed):
        raise ValueError(f"a picture is of one case with its plain step; there are {sorted(cases)}")
    plain = next(row for row in timed if row["way"] == "plain")
    times = [(row, row["seconds"] / plain["seconds"]) for row in timed]
    shown = [(row, times) for row, times in times if times <= _SLOWEST]
    beyond = [(row, times) for row, times in times if times > _SLOWEST]
    order = [*_NAMES, *(row["way"] for row in timed)]
    ways = sorted({row["way"] for row, _ in shown}, key=order.index)
    most = 1.05 * max(row["driver_gib"] for row, _ in shown)
    least = _STEP * math.floor(min(times for _, times in shown) / _STEP)

    def place(row: Row, times: float) -> tuple[float, float]:
        return 100 * row["driver_gib"] / most, _height(times, least)

    parts = _grid(most, least)
    for number, way in enumerate(ways):
        shade = f"c{number % len(PALETTE)}"
        mine = sorted((place(*one), *one) for one in shown if one[0]["way"] == way)
        parts += [line(f"path {shade}", one[0], other[0]) for one, other in pairwise(mine)]
        for (x, y), row, times in mine:
            tip = f"{_name(way)}: {times:.2f} in {row['driver_gib']:.1f} GiB"
            parts.append(
                f'<circle class="{shade} point" cx="{x:.2f}%" cy="{y:.1f}" r="5">'
                f"<title>{text(tip)}</title></circle>"
            )
    title = f"Time of a training step by GPU memory: {_about(plain)}"
    inner = "\n".join(parts)
    drawn = (
        f'<text x="{_LEFT}" y="16" style="font-size: 15px">{text(title)}</text>\n'
        f'<svg x="{_LEFT}" y="{TOP}" width="{WIDTH - 2 * _LEFT}" height="{_HEIGHT}">'
        f"{inner}</svg>"
    )
    return standalone(title, WIDTH, TOP + _HEIGHT + 76, [drawn, *_legend(ways, beyond)], style)


def _height(times: float, least: float) -> float:
    return _HEIGHT * (1 - (times - least) / (_SLOWEST - least))


def _grid(most: float, least: float) -> list[str]:
    parts = []
    for number in range(round((_SLOWEST - least) / _STEP) + 1):
        times = least + _STEP * number
        y = _height(times, least)
        parts.append(line("grid", (0, y), (100, y)))
        parts.append(word(f"{times:.2f} x", 0, y + 4, ' class="name" dx="-6"'))
    for number in range(_TICKS):
        share = number / (_TICKS - 1)
        parts.append(line("grid", (100 * share, 0), (100 * share, _HEIGHT)))
        mark = f"{most * share:.3g} GiB"
        parts.append(word(mark, 100 * share, _HEIGHT + 16, ' class="middle"'))
    return parts


def _legend(ways: Sequence[str], beyond: Sequence[tuple[Row, float]]) -> list[str]:
    parts, width = [], (WIDTH - _LEFT) / max(len(ways), 1)
    y = TOP + _HEIGHT + 40
    for number, way in enumerate(ways):
        x = _LEFT + number * width
        parts.append(entry(f"c{number % len(PALETTE)}", _name(way), x, y))
    named = ", ".join(
        f"{_name(row['way'])} {times:.1f} x in {row['driver_gib']:.1f} GiB" for row, times in beyond
    )
    if named:
        parts.append(f'<text x="{_LEFT}" y="{y + 26}">{text(f"Not shown: {named}.")}</text>')
    return parts


def _name(way: str) -> str:
    return _NAMES.get(way, way)


def _about(row: Row) -> str:
    return f"{row['model']}, {row['images']} images, {row['arithmetic']}, {row['gpu']}"
