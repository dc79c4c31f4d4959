"""Curves over what a set varies, as inline SVG: a network's time for each image by the size of the
batch, a sweep's time over the floor by the number of channels."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oocdnn._page import drawing, line, si, text, word
from oocdnn._shown import bytes_text
from oocdnn.bench.network import TEXT
from oocdnn.bench.report.figures import (
    HEIGHT,
    Series,
    series_of,
    shade,
    with_budget,
)
from oocdnn.bench.results import Row, shown_seconds, verdict

FLOOR = "floor"
MANY = 5.0  # times the least; beyond it the axis is one of logarithms
STEPS = (1, 2, 5)  # of a power of ten, between lines
CHANNELS = re.compile(r"conv2d:fwd x1x(\d+)x\d+x\d+ w\1x\1x(.*)")
Point = tuple[int, float]
Shown = dict[tuple[Series, int], Row]  # the rows that have a point, by what they are of and x


def batch_of(row: Row) -> int | None:
    """The images of a network's batch; None for another problem."""
    found = TEXT.fullmatch(row["problem"])
    return int(found[1]) if found else None


def channels_of(row: Row) -> int | None:
    """Of one image that has as many before as after; None for another problem."""
    found = CHANNELS.fullmatch(row["problem"]) if row["set"] == "poster" else None
    return int(found[1]) if found else None


def _for_an_image(row: Row, seconds: float | None) -> float | None:
    batch = batch_of(row)
    return seconds / batch if seconds and batch else None


def _over_floor(row: Row, seconds: float | None) -> float | None:
    return seconds / row["floor_seconds"] if seconds and row["floor_seconds"] else None


@dataclass(frozen=True)
class Kind:
    """What is drawn: `x` of a row, None where it has no place, and `y` of it and a time. `of` is
    what rows of one curve have in common."""

    title: str
    caption: str
    across: str
    tip: str
    x: Callable[[Row], int | None]
    y: Callable[[Row, float | None], float | None]
    show: Callable[[float], str]
    of: Callable[[Row], str]


KINDS = (
    Kind(
        title="Time for an image, by batch",
        caption="forward and backward: seconds of a step over the images of its batch; lower is "
        "better. Hollow: results that are mistrusted.",
        across="images",
        tip="batch {x}: {y} for an image",
        x=batch_of,
        y=_for_an_image,
        show=lambda value: si(value, "s"),
        of=lambda row: row["problem"].partition("x3x")[2],
    ),
    Kind(
        title="Time over the floor, by channels",
        caption="time over the least that any plan needs with its arrays in host memory; lower is "
        "better. Who is in core has no wire to wait for.",
        across="channels",
        tip="{x} channels: {y} times the floor",
        x=channels_of,
        y=_over_floor,
        show=lambda value: f"{value:.3g}",
        of=lambda row: CHANNELS.sub(r"\2", row["problem"]),
    ),
)


def curves(rows: Sequence[Row]) -> list[tuple[Kind, list[Row]]]:
    """What can be drawn: rows that differ in x and in who they are by, on one device and from one
    placement."""
    found: list[tuple[Kind, list[Row]]] = []
    for kind in KINDS:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            if kind.x(row) is not None:
                key = (kind.of(row), row["device"], row["placement"])
                groups.setdefault(key, []).append(row)
        found += [(kind, group) for group in groups.values()]
    return found


def by_series(kind: Kind, rows: Sequence[Row]) -> dict[Series, list[Point]]:
    """The points of each, by size; those of the floor too. Of one x the last result counts."""
    return _points(kind, _shown(kind, rows))


def _points(kind: Kind, shown: Shown) -> dict[Series, list[Point]]:
    found: dict[Series, dict[int, float]] = {}
    for (series, x), row in shown.items():
        found.setdefault(series, {})[x] = kind.y(row, row["seconds"]) or 0.0
        floor = kind.y(row, row["floor_seconds"]) if row["who"] == "oocdnn" else None
        if floor is not None:
            found.setdefault((FLOOR, 0), {})[x] = floor
    return {series: sorted(points.items()) for series, points in found.items()}


def _shown(kind: Kind, rows: Sequence[Row]) -> Shown:
    found: Shown = {}
    for series, row in zip(series_of(rows), rows, strict=True):
        x = kind.x(row)
        if x is not None and kind.y(row, shown_seconds(row)) is not None:
            found[series, x] = row
    return found


class Scale:
    """Places across by their logarithm, with room at either end, and heights from 0, or by their
    logarithm where they differ by far."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.places = sorted({x for x, _ in points})
        heights = [y for _, y in points]
        self._logarithmic = max(heights) > MANY * min(heights)
        if self._logarithmic:
            self.marks = _marks(min(heights), max(heights))
        else:
            step = _step(max(heights))
            self.marks = [step * i for i in range(math.ceil(max(heights) / step) + 1)]

    def __call__(self, point: Point) -> tuple[float, float]:
        (x, y), least, most = point, self.places[0], self.places[-1]
        across = math.log2(x / least) / math.log2(most / least) if most > least else 0.5
        first, last = self.marks[0], self.marks[-1]
        up = math.log(y / first) / math.log(last / first) if self._logarithmic else y / last
        return 4 + 92 * across, HEIGHT * (1 - up)


def _step(longest: float) -> float:
    """Between lines: 1, 2 or 5 of a power of ten, of which some four make the longest."""
    power = 10.0 ** math.floor(math.log10(longest / 4))
    return next(power * one for one in (*STEPS, 10) if power * one >= longest / 4)


def _marks(least: float, most: float) -> list[float]:
    """1, 2 and 5 of powers of ten, from the last below to the first above."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    every = [one * 10.0**power for power in powers for one in STEPS]
    first = max(mark for mark in every if mark <= least)
    last = min(mark for mark in every if mark >= most)
    return [mark for mark in every if first <= mark <= last]


def curve(kind: Kind, group: Sequence[Row], rows: Sequence[Row]) -> str:
    """One curve; of `group` there must be a point. `rows` are all of the page."""
    shown = _shown(kind, group)
    found = _points(kind, shown)
    scale = Scale([point for points in found.values() for point in points])
    parts = []
    for mark in scale.marks:
        _, y = scale((scale.places[0], mark))
        parts.append(line("grid", (0, y), (100, y)))
        parts.append(word(kind.show(mark) if mark else "0", 0, y + 4, ' class="name" dx="-6"'))
    for place in scale.places:
        x, _ = scale((place, scale.marks[-1]))
        parts.append(word(str(place), x, HEIGHT + 16, ' class="middle"'))
    parts.append(word(kind.across, 100, HEIGHT + 32, ' class="name"'))
    doubtful = {place for place, row in shown.items() if verdict(row) == "mistrusted"}
    for series, points in found.items():
        hollow = {x for x, _ in points if (series, x) in doubtful}
        parts += _path(kind, series, points, hollow, scale, rows)
    return drawing(kind.title.lower(), HEIGHT, "roofline", parts)


def _path(
    kind: Kind,
    series: Series,
    points: Sequence[Point],
    hollow: set[int],
    scale: Scale,
    rows: Sequence[Row],
) -> list[str]:
    """A line through the points of one, with discs; of the floor without. `hollow`: at which x the
    result is mistrusted. Where one has several budgets, each stands at its last point: they share
    a colour."""
    who, budget = series
    shown = "floor" if who == FLOOR else f"path {shade(who, rows)}"
    places = [scale(point) for point in points]
    parts = [line(shown, a, b) for a, b in pairwise(places)]
    if who == FLOOR:
        return parts
    for (at, value), (x, y) in zip(points, places, strict=True):
        said = f"{with_budget(who, budget)}, {kind.tip.format(x=at, y=kind.show(value))}"
        said += ", mistrusted" if at in hollow else ""
        tip = f"<title>{text(said)}</title>"
        shown = f"{shade(who, rows)} {'hollow' if at in hollow else 'point'}"
        parts.append(f'<circle class="{shown}" cx="{x:.2f}%" cy="{y:.1f}" r="5">{tip}</circle>')
    if budget:
        x, y = places[-1]
        parts.append(word(bytes_text(budget), x, y - 10, ' class="name"'))
    return parts
